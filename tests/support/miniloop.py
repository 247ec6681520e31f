"""The smallest event loop that an engine can live in."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.fleet import LONG, Fleet, check, check_tally
from support.waiting import DEADLINE

from redlock_fast.engine.contract import Batch, BatchVotes, Quorums, Request, Votes, Wait


class Loop:
    """A small event loop: it polls the engine's descriptor and collects decided requests in ``completed``.

    ``turns``: how often it was woken.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.completed: list[tuple[Any, Any]] = []
        self.turns = 0
        self._submitted = False
        fleet.engine.fileno()

    def submit(
        self,
        requests: Sequence[Request] | Batch,
        need: int | Quorums,
        timeout: float = LONG,
        wait: int = Wait.EARLY,
        stall: float = 0.0,
        *,
        context: object = "context",
    ) -> object:
        """It goes out with the next turn."""
        self._submitted = True
        return self.fleet.engine.submit(requests, need, timeout, wait, stall, context)

    def readable(self, within: float = 0.0) -> bool:
        poller = select.poll()
        poller.register(self.fleet.engine.fileno(), select.POLLIN)
        return bool(poller.poll(within * 1000))

    def turn(self, longest: float = 0.05) -> None:
        """Wait until the engine wants something, as an event loop would, and do it."""
        if self._submitted:
            self._submitted = False
            self.fleet.engine.flush()
        due = self.fleet.engine.next_timeout()
        wait = longest if due is None else max(0.0, min(due, longest))
        if self.readable(wait) or wait == due or (due is not None and due <= 0):
            self.turns += 1
            self.ready()

    def ready(self) -> None:
        """What an event loop does when ``fileno`` is readable."""
        for context, answer in self.fleet.engine.on_ready():
            for votes in answer.votes.values() if isinstance(answer, BatchVotes) else answer:
                check(votes, self.fleet.size)
            self.completed.append((context, answer))

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, f"never happened: {what}"
            self.turn()

    def hear(self, count: int = 1) -> list[Any]:
        """The next ``count`` answers."""
        self.until(lambda: len(self.completed) >= count, f"{count} are reported, not {len(self.completed)}")
        heard, self.completed[:count] = self.completed[:count], []
        return [answer for _, answer in heard]

    def votes(self) -> Votes:
        """The next answer, to a single request."""
        [[votes]] = self.hear()
        assert isinstance(votes, Votes)
        return votes

    def settle(self) -> None:
        """Nothing more to do: then ``fileno`` is not readable, or a loop would never sleep."""
        for _ in range(100):
            if not self.readable():
                return
            self.ready()
        raise AssertionError("fileno stays readable")


#: Hands a batch over to a fleet, with the arguments of ``exchange``, and returns the tally.
Ask = Callable[..., BatchVotes]


def by_exchange(f: Fleet, batch: Batch, need: int | Quorums, *how: Any, **named: Any) -> BatchVotes:
    return f.tally(batch, need, *how, **named)


def by_submit(f: Fleet, batch: Batch, need: int | Quorums, *how: Any, **named: Any) -> BatchVotes:
    loop = Loop(f)
    loop.submit(batch, need, *how, **named)
    [tally] = loop.hear()
    assert isinstance(tally, BatchVotes)
    check_tally(tally, batch, need, f.size)
    assert f.engine.next_timeout() is None, "nothing is pending"
    f.engine.close_loop_fd()
    return tally


both_ways = pytest.mark.parametrize("ask", [by_exchange, by_submit])
