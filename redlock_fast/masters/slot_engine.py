"""The engine of a client of a Cluster: it sends each request to the shard that serves the slot of its key.

A shard that no longer serves the slot answers MOVED or ASK, and has executed nothing. So the request is asked
again where that answer says. For the rest of the library a request has one vote, that of one shard: the other
masters were not asked.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ..engine.contract import Batch, BatchVotes, Engine, Quorums, Request, Votes, Wait
from ..wire.commands import Dialect, Verb
from ..wire.dialect import ASKING, KEYS, with_asking
from ..wire.slots import slot_of
from .topology import Topology

#: How often one request is asked again: a slot may move while the topology is read.
MAX_REDIRECTS = 5
OF_SEVERAL_KEYS = frozenset(map(int, (Verb.ACQUIRE_ALL, Verb.RELEASE_ALL)))
WATCHES = frozenset(map(int, (Verb.WATCH, Verb.RW_WATCH, Verb.SLOT_WATCH)))

Requests = Sequence[Request] | Batch
Answers = list[Votes] | BatchVotes


class SlotEngine:
    """``engine``, whose masters are the shards of ``topology``. What it does not change is the engine's."""

    def __init__(self, engine: Engine, topology: Topology) -> None:
        self._engine = engine
        self._topology = topology
        self.flush = engine.flush
        self.next_timeout = engine.next_timeout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def attach(self, master: int, sock: Any, dialect: Dialect) -> None:
        self._engine.attach(master, sock, with_asking(dialect))

    def exchange(
        self,
        requests: Requests,
        need: int | Quorums,
        timeout: float,
        wait: int = Wait.EARLY,
        stall: float = 0.0,
    ) -> Answers:
        end = time.monotonic() + timeout
        answers: Any = self._engine.exchange(self._routed(requests), need, timeout, wait, stall)
        for _ in range(MAX_REDIRECTS * bool(need)):
            again = self._redirects(requests, answers)
            left = end - time.monotonic()
            if not again or left <= 0:
                break
            _put(answers, again, self._engine.exchange(list(again.values()), need, left, wait, stall))
        return answers  # type: ignore[no-any-return]

    # --- for an event loop ---

    def submit(
        self,
        requests: Requests,
        need: int | Quorums,
        timeout: float,
        wait: int,
        stall: float,
        context: object,
    ) -> object:
        if not need:
            return self._engine.submit(self._routed(requests), need, timeout, wait, stall, context)
        asked = _Asked(requests, need, time.monotonic() + timeout, wait, stall, context)
        asked.ticket = self._engine.submit(self._routed(requests), need, timeout, wait, stall, asked)
        return asked

    def cancel(self, ticket: _Asked) -> None:
        self._engine.cancel(ticket.ticket)

    def on_ready(self) -> list[tuple[object, Any]]:
        """As of the engine. What is to be asked again is submitted, and returned by a later call."""
        ready, submitted = [], False
        for context, answers in self._engine.on_ready():
            asked: Any = context
            if asked.again:
                _put(asked.answers, asked.again, answers)
            else:
                asked.answers = answers
            asked.again = self._redirects(asked.requests, asked.answers)
            asked.redirects += 1
            left = asked.end - time.monotonic()
            if asked.again and left > 0 and asked.redirects <= MAX_REDIRECTS:
                requests = list(asked.again.values())
                asked.ticket = self._engine.submit(requests, asked.need, left, asked.wait, asked.stall, asked)
                submitted = True
            else:
                ready.append((asked.context, asked.answers))
        if submitted:
            self._engine.flush()
        return ready

    # --- where a request goes ---

    def _routed(self, requests: Requests) -> Requests:
        """The same requests, each to the shard that serves its slot, if it may be asked."""
        if isinstance(requests, Batch):
            return self._routed_batch(requests)
        owners = self._topology.owners
        return [_to(one, owners[slot_of(_key(one))]) for one in requests]

    def _routed_batch(self, batch: Batch) -> Batch:
        owners, keys = self._topology.owners, batch.args[0]
        served = [owners[slot_of(key)] for key in (keys if isinstance(keys, list) else [keys] * batch.count)]
        masters = batch.masters if isinstance(batch.masters, list) else [batch.masters] * batch.count
        if not batch.resend_for:
            served = [owner & allowed for owner, allowed in zip(served, masters, strict=True)]
        return Batch(batch.verb, batch.args, batch.count, served, batch.resend_for)

    def _redirects(self, requests: Requests, answers: Any) -> dict[int, Request]:
        """The requests to ask again, by their place: those that a node has not executed."""
        found: dict[int, Request] = {}
        single: Sequence[Request] | None = requests if isinstance(requests, list) else None
        each: Iterable[tuple[int, Votes]] = (
            enumerate(answers) if isinstance(answers, list) else list(answers.votes.items())
        )
        for place, votes in each:
            if votes.granted or votes.refused:
                continue
            for detail in votes.details.values():
                if type(detail) is bytes and detail.startswith((b"-MOVED ", b"-ASK ", b"-CLUSTERDOWN")):
                    if single is None:
                        single = requests.requests() if isinstance(requests, Batch) else requests
                    again = self._redirect(single[place], detail)
                    if again is not None:
                        found[place] = again
        return found

    def _redirect(self, request: Request, detail: bytes) -> Request | None:
        """``request`` for the shard that a node names. None: that is not known, or may not be asked."""
        code, *words = detail[1:-2].decode(errors="replace").split(" ")
        number = None
        with contextlib.suppress(ValueError):  # what a node says may be anything
            slot, where = int(words[0]), words[1] if len(words) > 1 else ""
            host, _, port = where.rpartition(":")
            if code == "ASK":
                number = self._topology.number_at((host, int(port)))
            elif code == "MOVED" and slot == slot_of(_key(request)):
                number = self._topology.moved(slot, (host, int(port)))
        if code != "ASK":
            self._topology.doubt()
        if number is None or (code == "ASK" and request.verb in WATCHES):
            return None
        again = _to(request, 1 << number, ASKING * (code == "ASK"))
        return again if again.masters else None


class _Asked:
    """An exchange of an event loop. ``again``: what is asked again now. ``ticket``: the engine's."""

    __slots__ = (
        "again",
        "answers",
        "context",
        "end",
        "need",
        "redirects",
        "requests",
        "stall",
        "ticket",
        "wait",
    )

    def __init__(
        self,
        requests: Requests,
        need: int | Quorums,
        end: float,
        wait: int,
        stall: float,
        context: object,
    ) -> None:
        self.requests, self.need, self.end = requests, need, end
        self.wait, self.stall, self.context = wait, stall, context
        self.again: dict[int, Request] = {}
        self.answers: Any = None
        self.redirects: int = 0
        self.ticket: object = None


def _key(request: Request) -> bytes:
    """A key of ``request``; all of them belong to one slot."""
    if request.verb in OF_SEVERAL_KEYS:
        size, _, rest = request.args[KEYS].partition(b"\r\n")
        return rest[: int(size[1:])]
    return request.args[0]


def _to(request: Request, owner: int, asking: int = 0) -> Request:
    """``request`` for the shard of the mask ``owner``.

    A request that must arrive goes there in any case: a key moves with its slot, so that shard has it. Any
    other goes only where it may go: a shard under a restart guard has no vote.
    """
    masters = owner if request.resend_for else request.masters & owner
    routed = Request(request.verb + asking, request.args, masters, request.resend_for)
    routed.awaited = request.awaited
    return routed


def _put(answers: Any, again: dict[int, Request], new: Any) -> None:
    """Put the ``new`` votes of the requests ``again`` in the places of their first ones."""
    for place, votes in zip(again, new, strict=True):
        if isinstance(answers, list):
            answers[place] = votes
        else:
            answers.granted[place], answers.sent[place] = votes.granted, votes.sent
            answers.votes[place] = votes
            if votes.granted:
                del answers.votes[place]
