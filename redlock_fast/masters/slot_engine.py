"""The engine of a client of a Cluster: it sends each request to the shard that serves the slot of its key.

A shard that no longer serves the slot answers MOVED or ASK, and has executed nothing. So the request is asked
again where that answer says. For the rest of the library a request has one vote, that of one shard: the other
masters were not asked.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..engine.contract import Engine, Wait
from ..engine.messages import Batch, BatchVotes, Quorums, Request, Votes
from ..wire.commands import Dialect, Verb
from ..wire.dialect import ASKING, KEYS, with_asking
from ..wire.slots import slot_of
from .topology import Topology

#: How often one request is asked again: a slot may move while the topology is read.
MAX_REDIRECTS = 5
OF_SEVERAL_KEYS = frozenset(map(int, (Verb.ACQUIRE_ALL, Verb.RELEASE_ALL)))
#: The verbs that give a lease to a token that has none yet.
GRANTS = frozenset(
    map(
        int,
        (
            *(Verb.ACQUIRE, Verb.FENCE, Verb.RW_READ, Verb.RW_WRITE),
            *(Verb.SLOT_ACQUIRE, Verb.ACQUIRE_ALL, Verb.FAIR),
        ),
    )
)
WATCHES = frozenset(map(int, (Verb.WATCH, Verb.RW_WATCH, Verb.SLOT_WATCH)))

Requests = Sequence[Request] | Batch
Answers = list[Votes] | BatchVotes


class SlotEngine:
    """``engine``, whose masters are the shards of ``topology``. What it does not change is the engine's."""

    def __init__(self, engine: Engine, topology: Topology) -> None:
        self._engine = engine
        self._topology = topology
        self.flush: Callable[[], None] = engine.flush
        self.next_timeout: Callable[[], float | None] = engine.next_timeout

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
            again = None if _is_decided(answers) else self._redirects(requests, answers)
            left = end - time.monotonic() if again else 0.0
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
        ready: list[tuple[object, Any]] = []
        submitted = False
        for context, answers in self._engine.on_ready():
            asked = context
            assert isinstance(asked, _Asked)
            if asked.again:
                _put(asked.answers, asked.again, answers)
                answers = asked.answers
            again = None if _is_decided(answers) else self._redirects(asked.requests, answers)
            if again and self._ask_again(asked, again, answers):
                submitted = True
            else:
                ready.append((asked.context, answers))
                asked.context = None  # it refers to the ticket
        if submitted:
            self._engine.flush()
        return ready

    def _ask_again(self, asked: _Asked, again: dict[int, Request], answers: Answers) -> bool:
        """Submit the requests ``again``, if there is time. Returns whether that is so."""
        left = asked.end - time.monotonic()
        if left <= 0 or asked.redirects == MAX_REDIRECTS:
            return False
        asked.again, asked.answers, asked.redirects = again, answers, asked.redirects + 1
        requests = list(again.values())
        asked.ticket = self._engine.submit(requests, asked.need, left, asked.wait, asked.stall, asked)
        return True

    # --- where a request goes ---

    def _routed(self, requests: Requests) -> Requests:
        """The same requests, each to the shard that serves its slot.

        A request that must arrive goes there in any case: a key moves with its slot, so that shard has it.
        Any other goes only where it may go: a shard under a restart guard has no vote, and a slot that has
        left such a shard grants nothing.
        """
        if isinstance(requests, Batch):
            return self._routed_batch(requests)
        topology, routed = self._topology, []
        owners = topology.owners
        for one in requests:
            slot = slot_of(_key(one) if one.verb in OF_SEVERAL_KEYS else one.args[0])
            masters = owners[slot]
            if not one.resend_for:
                masters &= one.masters
                if topology.suspects and one.verb in GRANTS and not topology.grants(slot):
                    masters = 0
            request = Request(one.verb, one.args, masters, one.resend_for)
            request.awaited = one.awaited
            routed.append(request)
        return routed

    def _routed_batch(self, batch: Batch) -> Batch:
        topology, keys = self._topology, batch.args[0]
        slots = [slot_of(key) for key in (keys if isinstance(keys, list) else [keys] * batch.count)]
        served = [topology.owners[slot] for slot in slots]
        if topology.suspects and batch.verb in GRANTS:
            served = [topology.owners[slot] * topology.grants(slot) for slot in slots]
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
        if not (request.resend_for or request.masters >> number & 1):
            return None
        if request.verb in GRANTS and not self._topology.grants(slot_of(_key(request))):
            return None
        verb = request.verb + ASKING * (code == "ASK")
        return Request(verb, request.args, 1 << number, request.resend_for)


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
        self.requests: Requests = requests
        self.need: int | Quorums = need
        self.end: float = end
        self.wait: int = wait
        self.stall: float = stall
        self.context: object = context
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


def _is_decided(answers: Any) -> bool:
    """Whether the answer is that of one request, which a shard has executed."""
    if type(answers) is not list or len(answers) != 1:
        return False
    votes = answers[0]
    return bool(votes.granted or votes.refused)


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
