"""An engine attached to scripted masters, and a test's words for both."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from support.scripted import Answer, Pair, ScriptedMaster, Session, Words
from support.waiting import eventually, start

from redlock_fast.engine.contract import (
    FAULT,
    Batch,
    BatchVotes,
    ConnectionState,
    Engine,
    Quorums,
    Request,
    Votes,
    Wait,
)
from redlock_fast.wire.commands import Command, Dialect, Reply, Verb
from redlock_fast.wire.dialect import Capabilities, dialect

TOKEN = b"t" * 20
TTL = b"10000"


def unchecked(can: Capabilities) -> Dialect:
    """The commands for such a server; a scripted master may reply whatever the test counts by."""

    def loose(template: Command) -> Command:
        fallback = template.fallback and loose(template.fallback)
        return template._replace(reply=Reply.ANY, fallback=fallback)

    return tuple(map(loose, dialect(can)))


#: A server without native commands for locks: releases are scripts, with a fallback.
PLAIN = unchecked(Capabilities())
#: A server that has them all.
NATIVE = unchecked(Capabilities(delifeq=True, expire_gt=True))

#: A timeout for exchanges that are decided long before it.
LONG = 60.0
#: More than a busy machine takes for what should be immediate, and less than LONG.
SOON = 20.0
#: A timeout that ends an exchange, after the replies that the test expects.
ENOUGH = 1.0


def acquire(key: bytes, masters: int, resend_for: float = 0.0) -> Request:
    return Request(Verb.ACQUIRE, (key, TOKEN, TTL), masters, resend_for)


def release(key: bytes, masters: int, resend_for: float = 0.0) -> Request:
    return Request(Verb.RELEASE, (key, TOKEN), masters, resend_for)


def acquires(names: list[bytes], masters: int | list[int], resend_for: float | list[float] = 0.0) -> Batch:
    return Batch(Verb.ACQUIRE, (names, TOKEN, TTL), len(names), masters, resend_for)


def keys(count: int, tail: bytes = b"") -> list[bytes]:
    """So many different ones."""
    return [b"%06d" % number + tail for number in range(count)]


def releases(names: list[bytes], masters: int | list[int], resend_for: float | list[float] = 0.0) -> Batch:
    return Batch(Verb.RELEASE, (names, TOKEN), len(names), masters, resend_for)


def as_requests(batch: Batch) -> list[Request]:
    """The rows of the columns."""

    def at(column: Any, number: int) -> Any:
        return column[number] if isinstance(column, list) else column

    return [
        Request(
            batch.verb,
            tuple(at(arg, number) for arg in batch.args),
            at(batch.masters, number),
            at(batch.resend_for, number),
        )
        for number in range(batch.count)
    ]


def number_for(key: bytes, master: int) -> int:
    """What ``numbering`` masters answer: a number of its own to each key from each master."""
    return zlib.crc32(b"%d:%b" % (master, key)) + 1


def numbering(master: int) -> Answer:
    return lambda words: b":%d\r\n" % number_for(words[1], master)


def numbers_are_right(key: bytes, votes: Votes, uncertain: int = 0) -> None:
    """The votes of ``numbering`` masters. ``uncertain``: those that may be disconnected.

    Then any other may be passed over too, because the machine was busy and it lagged.
    """
    for master, value in enumerate(votes.values):
        fault = uncertain and (uncertain | ~votes.sent) >> master & 1
        right = value == number_for(key, master) or (value == FAULT and fault)
        assert right, f"{value} for {key!r}: {votes.details}"


def set_words(key: bytes) -> Words:
    """An acquire, as a master sees it."""
    return (b"SET", key, TOKEN, b"NX", b"PX", TTL)


def del_words(key: bytes) -> Words:
    """A release, as a master with the NATIVE dialect sees it."""
    return (b"DELIFEQ", key, TOKEN)


def check(votes: Votes, masters: int) -> None:
    """What is true of all votes."""
    values = votes.values
    assert len(values) == masters
    assert votes.granted == sum(value > 0 for value in values)
    assert votes.faulty == sum(value == FAULT for value in values)
    assert votes.refused == sum(FAULT < value <= 0 for value in values)
    assert set(votes.details) == {master for master in range(masters) if values[master] == FAULT}
    assert all(votes.details.values()), "a fault without a reason"
    assert 0 <= votes.sent < 1 << masters
    for master, value in enumerate(values):
        if not votes.sent >> master & 1:
            assert value == FAULT, "a vote of a master that was not asked"


def has_quorum(votes: Votes, need: int | Quorums) -> bool:
    return need.granted(votes.values) if isinstance(need, Quorums) else votes.granted >= need


def check_tally(tally: BatchVotes, batch: Batch, need: int | Quorums, masters: int) -> None:
    """What is true of all tallies."""
    assert len(tally.granted) == len(tally.sent) == batch.count
    for number, (granted, sent) in enumerate(zip(tally.granted, tally.sent, strict=True)):
        votes = tally.votes.get(number)
        if votes is None:
            least = need if isinstance(need, int) else max(number for _, number in need.lists)
            assert granted >= least, "those without a quorum are reported in full"
            assert 0 <= sent < 1 << masters
        else:
            check(votes, masters)
            counts = isinstance(need, int) or has_quorum(votes, need)
            assert (votes.granted if counts else 0, votes.sent) == (granted, sent)
            assert not has_quorum(votes, need) or votes.faulty, "the others are not reported in full"
    assert all(0 <= number < batch.count for number in tally.votes)


class Fleet:
    """An engine with one scripted master per answer."""

    def __init__(
        self,
        engine_class: type[Engine],
        *answers: Answer,
        attach: bool = True,
        commands: Dialect = NATIVE,
        pair: Pair = socket.socketpair,
        buffers: int = 0,
        reading: bool = True,
        lag_after: float = LONG,
        **bounds: Any,
    ) -> None:
        self._master = partial(ScriptedMaster, pair=pair, buffers=buffers, reading=reading)
        self.masters = [self._master(answer) for answer in answers]
        self.breaks = threading.Semaphore(0)
        self.engine: Engine = engine_class(self.size, self.breaks.release, lag_after=lag_after, **bounds)
        self.commands = commands
        for master in range(self.size) if attach else ():
            self.attach(master)

    @property
    def size(self) -> int:
        return len(self.masters)

    @property
    def all(self) -> int:
        return (1 << self.size) - 1

    def grow(self, *answers: Answer) -> None:
        """More masters; not attached."""
        self.engine.grow(self.size + len(answers))
        self.masters += [self._master(answer) for answer in answers]

    def attach(self, master: int, commands: Dialect | None = None) -> Session:
        """A new connection for this master; the server's end of it."""
        client = self.masters[master].connect()
        self.engine.attach(master, client, commands or self.commands)
        return self.session(master)

    def detach(self, master: int) -> None:
        """Undo what is owed, wait until the master has read it, close: as the owner of the engine does."""
        session = self.session(master)
        sock = self.engine.detach(master)
        assert not self.connection_state(master).attached
        if sock is not None:
            with sock:
                sock.setblocking(False)

                def ended() -> bool:
                    # Read while waiting: a master whose replies are not read stops reading at some hundred.
                    with contextlib.suppress(OSError):
                        while sock.recv(1 << 16):
                            pass
                    return session.ended.is_set()

                eventually(ended, "the master sees the end: the socket that came back is half-closed")

    def reattach(self, master: int, commands: Dialect | None = None) -> Session:
        """Another connection in place of the one there was."""
        self.detach(master)
        return self.attach(master, commands)

    def session(self, master: int) -> Session:
        return self.masters[master].session

    def connection_state(self, master: int) -> ConnectionState:
        return self.engine.connection_state(master)

    def exchange(
        self,
        requests: list[Request],
        need: int | Quorums,
        timeout: float = LONG,
        wait: int = Wait.EARLY,
    ) -> list[Votes]:
        """What the engine says, checked for what is always true."""
        answers = self.engine.exchange(requests, need, timeout, wait)
        assert len(answers) == len(requests)
        for votes in answers:
            check(votes, self.size)
        return answers

    def tally(
        self,
        batch: Batch,
        need: int | Quorums,
        timeout: float = LONG,
        wait: int = Wait.EARLY,
        stall: float = 0.0,
    ) -> BatchVotes:
        """What the engine says to a batch, checked for what is always true."""
        tally = self.engine.exchange(batch, need, timeout, wait, stall)
        check_tally(tally, batch, need, self.size)
        return tally

    def ask(
        self, request: Request, need: int | Quorums, timeout: float = LONG, wait: int = Wait.EARLY
    ) -> Votes:
        """One request."""
        return self.exchange([request], need, timeout, wait)[0]

    def ask_in_background(
        self, request: Request, need: int | Quorums, timeout: float = LONG, wait: int = Wait.EARLY
    ) -> Future[Votes]:
        """One request by another thread; returns when it arrived at all masters that it asks."""
        asked = [m for m in range(self.size) if request.masters >> m & 1]
        before = {master: len(self.session(master).commands) for master in asked}
        future = start(lambda: self.ask(request, need, timeout, wait))
        for master, count in before.items():
            self.session(master).wait_commands(count + 1)
        return future

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Tend the engine until ``condition()``."""

        def tended() -> object:
            self.engine.maintain()
            return condition()

        eventually(tended, what)

    def until_lagging(self, master: int) -> None:
        self.until(lambda: self.connection_state(master).lag > 0, f"master {master} lags")

    def until_broken(self, master: int) -> str:
        """Why the master's connection broke, once it did."""
        self.until(lambda: self.connection_state(master).broken, f"the connection of master {master} breaks")
        assert not self.connection_state(master).attached
        return self.connection_state(master).broken

    def lose(self, master: int) -> None:
        """The master closes the connection, and the engine has seen it."""
        self.session(master).close()
        self.until_broken(master)

    def close(self) -> None:
        """Close both sides and drop the engine: what it still holds then is a leak."""
        if hasattr(self, "engine"):
            self.engine.close()
            del self.engine
        for master in self.masters:
            master.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MakeFleet(Protocol):
    """The ``fleet`` fixture."""

    def __call__(self, *answers: Answer, **options: Any) -> Fleet: ...


class Stopwatch:
    """How long the block took, in seconds."""

    def __enter__(self) -> Stopwatch:
        self.began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self.began
