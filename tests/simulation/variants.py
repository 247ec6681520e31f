"""Locks that are broken on purpose: the real code with one piece of it changed.

Each has to be convicted, or the simulation could not see what it is for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from textwrap import dedent
from typing import Any
from unittest.mock import patch

from redlock_fast.algorithm import attempts as _attempts
from redlock_fast.algorithm import batch as _batches
from redlock_fast.algorithm import lock_kind as _lock_kind
from redlock_fast.algorithm import master_lists as _master_lists
from redlock_fast.algorithm import procedures as _procedures
from redlock_fast.algorithm import refill as _refill
from redlock_fast.algorithm.attempts import RetryLoop
from redlock_fast.algorithm.effects import WaitForChange
from redlock_fast.algorithm.local_queue import LocalQueue
from redlock_fast.algorithm.policy import Policy
from redlock_fast.algorithm.quorum import drift
from redlock_fast.engine.contract import NO_REPLY, Votes
from redlock_fast.engine.pure.request import PendingRequest
from redlock_fast.engine.pure.subscriptions import Subscriptions
from redlock_fast.locks import client_core as _core
from redlock_fast.locks.lock_state import LockState
from redlock_fast.masters.restart_guard import Guard
from redlock_fast.wire import dialect as _dialect
from redlock_fast.wire.commands import Verb, command
from redlock_fast.wire.dialect import KEY, TOKEN, TTL

from . import actors as _actors
from . import engine, scenario
from .network import Connection
from .server import Server

#: Three masters, and clients that wait for one lock by push.
WAITING = 0, 0, scenario.KINDS.index("waiting"), scenario.WAITS.index("push")


def of(kind: str, all_decide: bool = False) -> tuple[int, ...]:
    """Three masters, of which a quorum or all decide, and clients of this kind."""
    return 0, int(all_decide), scenario.KINDS.index(kind)


EXTENDING = of("extending")
#: A module or class, the name in it, and what stands there instead.
Change = tuple[Any, str, Any]


@dataclass(frozen=True)
class Variant:
    """``breaks``: the rules that it is convicted of, all of them. ``careless``: see Nemesis.

    ``first``: the first choices of runs that show it soon. ``seed``: that of the first run to try.
    """

    name: str
    breaks: frozenset[str]
    changes: Callable[[], list[Change]]
    careless: bool = False
    first: tuple[int, ...] = ()
    seed: int = 0

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, value in self._changed:
                stack.enter_context(patch.object(owner, name, value))
            yield

    @cached_property
    def _changed(self) -> list[Change]:
        """Made once: shrinking applies a variant hundreds of times, and tables are kept for each dialect."""
        return self.changes()


def rewritten(function: Callable[..., Any], *edits: tuple[str, str]) -> Any:
    """The function with its source text changed; everything else it uses is the real code."""
    source = dedent(inspect.getsource(function))
    for old, new in edits:
        assert source.count(old) == 1, f"{function.__qualname__} has changed: {old!r}"
        source = source.replace(old, new)
    names: dict[str, Any] = {}
    exec(compile(source, f"<broken {function.__qualname__}>", "exec"), function.__globals__, names)
    return names[function.__name__]


def half_is_enough() -> list[Change]:
    def half(masters: int) -> int:
        return max(1, masters // 2)

    return [(scenario, "quorum", half), (_master_lists, "quorum", half)]


def finished(end: Callable[[Policy, float, float], float]) -> list[Change]:
    """Leases get the deadline ``end(policy, ttl, deadline)`` when their votes are counted."""

    class Changed(LockState):
        def _on_granted(self, lease: Any, body: Any = None) -> None:
            lease.deadline = end(self._policy, lease.ttl, lease.deadline)
            super()._on_granted(lease, body)

    def finish(attempt: Any, *what: Any) -> Any:
        attempt.end = end(attempt.policy, attempt.ttl, attempt.end)
        return real(attempt, *what)

    real = _batches.finish_attempts
    return [(_actors, "LockState", Changed), (_batches, "finish_attempts", finish)]


def time_stands_still() -> list[Change]:
    """The lease counts from when the quorum was reached, not from before the first byte."""
    return finished(lambda policy, ttl, _: policy.clock() + ttl - drift(ttl, policy.drift_factor))


def with_command(verb: Verb, *words: bytes | int) -> list[Change]:
    """All masters are sent this instead."""
    real = _dialect.dialect

    def dialect(*args: Any) -> Any:
        commands = list(real(*args))
        commands[verb] = command(*words)
        return tuple(commands)

    return [(_dialect, "dialect", dialect)]


def delete_without_compare() -> list[Change]:
    return with_command(Verb.RELEASE, b"DEL", KEY)


def extend_with_any_token() -> list[Change]:
    return with_command(Verb.EXTEND, b"SET", KEY, TOKEN, b"PX", TTL)


def extend_creates() -> list[Change]:
    """As SET NX does on a key that has ended, and without a look at the own deadline."""
    edits = (
        (_procedures.extended_already, ("start >= lease.deadline", "False")),
        (_procedures.extended, ("now >= lease.deadline or ", "")),
        (_procedures.extension, ("min(policy.node_timeout, lease.deadline - start)", "policy.node_timeout")),
    )
    changed = [(_procedures, function.__name__, rewritten(function, edit)) for function, edit in edits]
    return changed + with_command(Verb.EXTEND, b"EXTEND-OR-SET-NX", KEY, TOKEN, TTL)


def late_refill() -> list[Change]:
    """A round that is decided after the lease has ended still counts, and is followed by a refill."""
    edits = (
        (_procedures.extended, ("now >= lease.deadline or ", "")),
        (_procedures.extension, ("min(policy.node_timeout, lease.deadline - start)", "policy.node_timeout")),
    )
    return [(_procedures, function.__name__, rewritten(function, edit)) for function, edit in edits]


def refill_counts_at_once() -> list[Change]:
    """Begun in time, but by the extension itself: what it has just created counts as what was kept."""
    return late_refill() + with_command(Verb.EXTEND, b"EXTEND-OR-SET-NX", KEY, TOKEN, TTL)


def refill_is_not_released() -> list[Change]:
    """A release goes only to the masters that got the acquire."""
    edit = "lease.sent |= mask", "pass"
    broken = rewritten(_refill.refill, edit)
    return [(_procedures, "refill", broken), (_batches, "refill", broken)]


def clocks_agree() -> list[Change]:
    """No allowance for drift."""

    def deadline(start: float, ttl: float, factor: float) -> float:
        return start + ttl

    changes = finished(lambda policy, ttl, end: end + drift(ttl, policy.drift_factor))
    return [*changes, (_procedures, "deadline", deadline)]


def one_token_for_all_rounds() -> list[Change]:
    class KeepsPlace(_lock_kind.LockKind):
        keeps_place = True

    return [(_core, "LockKind", KeepsPlace)]


def silence_is_a_yes() -> list[Change]:
    """A master that has not answered in time counts as a grant."""

    def votes(self: PendingRequest) -> Votes:
        silent = self.values.count(NO_REPLY) if self.need and self.sent else 0
        granted = self.granted + silent
        return Votes(tuple(self.values), self.sent, granted, self.refused, self.faulty, self.details)

    return [(PendingRequest, "votes", votes)]


def release_on_a_new_connection() -> list[Change]:
    """As clients with a pool of connections do: it may overtake what it is to take back."""

    def send(self: engine.Engine, connection: Connection, op: PendingRequest) -> None:
        if op.request.verb == Verb.RELEASE:
            connection = Connection(self, connection.server, None)
        connection.send(op)

    return [(engine.Engine, "send", send)]


def undo_of_all_that_is_owed() -> list[Change]:
    """A connection that is given up carries the undo of requests that leases count on."""
    return [(PendingRequest, "has_failed", lambda op, closing=False: True)]


def extensions_set() -> list[Change]:
    """An extension sets the ttl that it asks for, also where more is left: as SET and PEXPIRE do."""
    return [(Server, "later", staticmethod(lambda until, asked: asked))]


def set_ends_with_last_member() -> list[Change]:
    """A reader with a short ttl shortens the whole set of readers."""

    def outlive(self: Server, key: bytes, ttl: bytes) -> None:
        self.sets[key].until = self.milliseconds() + int(ttl)

    return [(Server, "outlive", outlive)]


def flushes_are_not_noticed() -> list[Change]:
    """A client does not look at what a master pushes of all its keys."""

    def flushed(self: engine.Engine, connection: Connection) -> None:
        pass

    return [(engine.Engine, "flushed", flushed)]


def roles_are_not_seen() -> list[Change]:
    """A master whose data was replaced, in the same process, is the same."""
    real = engine.Engine.flushed

    def flushed(self: engine.Engine, connection: Connection) -> None:
        if not connection.server.replica:
            real(self, connection)

    def identity(self: Server) -> dict[str, Any]:
        return {"role": "master", "witness": self.push}

    return [(engine.Engine, "flushed", flushed), (Server, "identity", identity)]


def disks_are_believed() -> list[Change]:
    """A master that restarts with appendfsync always has forgotten nothing."""
    real = Guard.quarantine

    def silence(self: Guard, before: Any, server: Any, **what: Any) -> float:
        believed = server.durable and not what.get("flushed")
        return 0.0 if believed else real(self, before, server, **what)

    return [(Guard, "quarantine", silence)]


def largest_counter() -> list[Change]:
    """The fencing token is the largest of the counters, and no master has to vouch for it."""

    def fence(attempt: Any, lock_kind: Any, votes: Any, timeout: float) -> Any:
        yield from ()
        return max(votes.values), sum(value > 0 for value in votes.values)

    return [(_attempts, "fence", fence)]


# --- waiting: counterexamples of a model checker --------------------------------------


def look_then_track() -> list[Change]:
    """'late': masters begin to track only after their reply to EXISTS."""

    def track(self: Server, key: bytes) -> None:
        self.world.after(self.world.delay(), begin, self, key, self.caller)

    def begin(self: Server, key: bytes, caller: Connection) -> None:
        self.caller = caller
        real(self, key)

    real = Server.track
    return [(Server, "track", track)]


def few_are_asked() -> list[Change]:
    """'few': no more masters watch than a quorum leaves over, and the first of them decides."""
    edits = (
        ("watch_request(policy.voters.asked())", "watch_request((1 << lists.masters - lists.least) - 1)"),
        ("WaitForChange(undo, watch, lists.need,", "WaitForChange(undo, watch, 1,"),
        ("lists.failed(seen)", "seen.faulty == lists.masters"),
    )
    return [(RetryLoop, "_wait", rewritten(RetryLoop._wait, *edits))]


def undo_is_awaited() -> list[Change]:
    """A watch that has ended waits for the replies to the requests before it, which undo a round."""
    edit = "request.awaited = False", "pass"
    return [(WaitForChange, "__init__", rewritten(WaitForChange.__init__, edit))]


def pushes_alone_count() -> list[Change]:
    """'count': not what was free when it was asked for."""
    edit = "self.count(master, 1)", "pass"
    return [(PendingRequest, "count_pttl", rewritten(PendingRequest.count_pttl, edit))]


def leases_do_not_end() -> list[Change]:
    """'noexpiry': no timer for the end of the lease."""
    edit = "value >= 0 and", "False and"
    return [(PendingRequest, "count_pttl", rewritten(PendingRequest.count_pttl, edit))]


def connections_do_not_end_watches() -> list[Change]:
    """'noreconn': a waiting client does not ask again on a new connection."""

    def end(self: Subscriptions) -> None:
        pass

    return [(Subscriptions, "end", end)]


def next_is_not_woken() -> list[Change]:
    """A caller that leaves the queue does not wake the next one."""
    return [(LocalQueue, "leave", rewritten(LocalQueue.leave, ("if wake is not None:", "if False:")))]


def nothing() -> list[Change]:
    return []


#: A counted vote was lost.
V = frozenset({"V"})

VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("quorum N//2", frozenset({"S1", "S4"}), half_is_enough),
        Variant("elapsed time is missing", frozenset({"S1"}), time_stands_still),
        Variant("delete without compare", frozenset({"S1", "S2"}), delete_without_compare),
        Variant("extend with any token", frozenset({"S2", "V"}), extend_with_any_token, first=EXTENDING),
        Variant("extend creates", frozenset({"S4"}), extend_creates),
        Variant("late refill", frozenset({"S4"}), late_refill, first=of("reentrant")),
        Variant(
            "refill counts at once", frozenset({"S4", "L2"}), refill_counts_at_once, first=of("semaphore")
        ),
        Variant("refill is not released", frozenset({"L2"}), refill_is_not_released),
        Variant("clocks agree", frozenset({"S1"}), clocks_agree, first=of("plain")),
        Variant("one token for all rounds", frozenset({"S3", "S5"}), one_token_for_all_rounds),
        Variant("silence is a yes", frozenset({"S1", "S4"}), silence_is_a_yes),
        Variant("release on a new connection", frozenset({"L2"}), release_on_a_new_connection),
        *(
            Variant(
                f"undo of all that is owed, {kind}",
                V,
                undo_of_all_that_is_owed,
                first=of(kind, True),
                seed=seed,
            )
            for kind, seed in (("extending", 35), ("renewing", 0), ("readwrite", 200))
        ),
        *(
            Variant(f"extensions set, {kind}", V, extensions_set, first=of(kind, True))
            for kind in ("extending", "renewing")
        ),
        Variant("set ends with its last member", V, set_ends_with_last_member, first=of("readwrite")),
        Variant("largest of the counters", frozenset({"F"}), largest_counter, first=of("fencing")),
        Variant("look, then track", frozenset({"L1"}), look_then_track, first=(*WAITING, 1, 1, 1)),
        *(
            Variant(name, frozenset({"L1"}), changes, first=WAITING, seed=seed)
            for name, changes, seed in (
                ("few are asked", few_are_asked, 20),
                ("pushes alone count", pushes_alone_count, 0),
                ("leases do not end", leases_do_not_end, 0),
                ("connections do not end watches", connections_do_not_end_watches, 135),
                ("the next is not woken", next_is_not_woken, 15),
            )
        ),
        # Callers that take places on the masters.
        Variant(
            "the undo is awaited", frozenset({"L1"}), undo_is_awaited, first=(*WAITING, 1, 0, 1, 3), seed=27
        ),
        # Masters that push changes, and the guard "auto".
        *(
            Variant(name, frozenset({"S1"}), changes, first=(*of("extending"), 1, 0, 0, 0), seed=seed)
            for name, changes, seed in (
                ("flushes are not noticed", flushes_are_not_noticed, 0),
                ("roles are not seen", roles_are_not_seen, 35),
                ("disks are believed", disks_are_believed, 170),
            )
        ),
        Variant("no restart guard", frozenset({"S1"}), nothing, careless=True, first=EXTENDING),
    )
}
