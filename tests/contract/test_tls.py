"""The same contract over TLS, whose sockets the engines read and write in another way."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from support.fleet import (
    ENOUGH,
    LONG,
    SOON,
    MakeFleet,
    Stopwatch,
    acquire,
    del_words,
    keys,
    release,
    set_words,
)  # fmt: skip
from support.forking import exit_code, fork_here, needs_fork
from support.scripted import Pair, Words, always, failing, granting, once_all_came, refusing, silent, tcp_pair
from support.tls import Tls
from support.tls_flood import DATA
from support.waiting import DEADLINE, eventually, start

from redlock_fast.engine.contract import FAULT, FLUSHED, NO_REPLY, Engine, Votes, Wait
from redlock_fast.engine.pure.engine import PureEngine
from redlock_fast.engine.tls import TlsSocket


@pytest.fixture(scope="session", params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=str)
def certified(request: pytest.FixtureRequest) -> Tls:
    return Tls(request.param)


@pytest.fixture(scope="session")
def flooding(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return Tls(keys=tmp_path_factory.mktemp("keys"))


@pytest.fixture
def tls(certified: Tls) -> Pair:
    return certified.over(tcp_pair)


def number(words: Words) -> bytes:
    """The key is the vote."""
    return b":%b\r\n" % words[1]


def test_votes(fleet: MakeFleet, tls: Pair) -> None:
    f = fleet(always(b":7\r\n"), refusing, failing, granting, pair=tls)
    votes = f.ask(acquire(b"k", f.all), need=2, wait=Wait.ALL)
    assert votes.values == (7, 0, FAULT, 1)
    assert votes.details == {2: b"-OOM command not allowed\r\n"}


def test_decision_and_timeout(fleet: MakeFleet, tls: Pair) -> None:
    f = fleet(granting, granting, silent, pair=tls)
    with Stopwatch() as watch:
        assert f.ask(acquire(b"k", f.all), need=2).granted == 2
    assert watch.seconds < SOON
    with Stopwatch() as watch:
        votes = f.ask(acquire(b"k", f.all, resend_for=LONG), need=3, timeout=ENOUGH)
    assert ENOUGH <= watch.seconds < SOON
    assert votes.values == (1, 1, NO_REPLY)


def test_replies_in_many_records(fleet: MakeFleet, tls: Pair) -> None:
    stream = b":1\r\n$-1\r\n>1\r\n+x\r\n*1\r\n+OK\r\n:4\r\n"
    f = fleet(once_all_came(4, [bytes([byte]) for byte in stream]), pair=tls)
    answers = f.exchange([acquire(b"%d" % n, 1) for n in range(4)], need=1)
    assert [votes.values[0] for votes in answers] == [1, 0, FAULT, 4]
    assert f.connection_state(0).pushes == 1


def test_records_that_are_read_in_one_go_are_not_forgotten(fleet: MakeFleet, tls: Pair) -> None:
    # The TLS layer may hold what poll() on the socket no longer shows.
    f = fleet(once_all_came(2000, [b"".join(b":%d\r\n" % (n + 1) for n in range(2000))]), pair=tls)
    answers = f.exchange([acquire(b"%d" % n, 1) for n in range(2000)], need=1)
    assert [votes.values[0] for votes in answers] == list(range(1, 2001))


def test_large_reply(fleet: MakeFleet, tls: Pair) -> None:
    reply = b"$4000\r\n" + b"x" * 4000 + b"\r\n"
    push = b">1\r\n$3000\r\n" + b"x" * 3000 + b"\r\n"
    f = fleet(always(push * 5 + reply + b">1\r\n+x\r\n"), pair=tls)
    assert f.ask(acquire(b"k", 1), need=1).details == {0: f"unexpected reply of {len(reply)} bytes"}
    f.until(lambda: f.connection_state(0).pushes == 6, "what is behind it is read too")


def test_large_batch_through_small_buffers_does_not_stall(fleet: MakeFleet, certified: Tls) -> None:
    def long_number(words: Words) -> bytes:
        return b":1000000%b\r\n" % words[1][:6]

    f = fleet(long_number, long_number, pair=certified.over(socket.socketpair), buffers=4096)
    keys = [b"%06d" % n + b"k" * 194 for n in range(5000)]
    answers = f.exchange([acquire(key, f.all) for key in keys], need=2)
    for key, votes in zip(keys, answers, strict=True):
        assert votes.values == (int(b"1000000" + key[:6]),) * 2


def test_threads(fleet: MakeFleet, tls: Pair) -> None:
    f = fleet(number, number, number, pair=tls)

    def work(thread: int) -> None:
        for step in range(40):
            key = thread * 1000 + step + 1
            assert f.ask(acquire(b"%d" % key, f.all, resend_for=LONG), 3).values == (key,) * 3

    for future in [start(lambda thread=n: work(thread)) for n in range(12)]:  # type: ignore[misc]
        future.result(DEADLINE)


def test_tls_and_plain_masters_side_by_side(fleet: MakeFleet, tls: Pair) -> None:
    f = fleet(number, number, attach=False, pair=tls)
    f.attach(0)
    f.masters[1] = type(f.masters[1])(number)
    f.attach(1)
    for step in range(1, 50):
        assert f.ask(acquire(b"%d" % step, f.all), need=2).values == (step, step)


def test_messages_without_data(fleet: MakeFleet, flooding: Tls) -> None:
    """Catches: a read that goes on as long as the master sends messages of TLS itself."""
    f = fleet(silent, granting, pair=flooding.over(tcp_pair))
    server: Any = f.session(0).sock
    flood = start(server.flood)
    try:
        assert f.ask_in_background(acquire(b"k", f.all), 1).result(SOON).values[1] == 1
        assert start(lambda: f.until_broken(0)).result(SOON)
        assert f.connection_state(0).broken == "protocol error: too much TLS without data"
        start(f.engine.close).result(SOON)
    finally:
        f.session(0).close()
        flood.result(SOON)


@pytest.mark.parametrize("ending", ["close", "detach"])
def test_end_during_messages_without_data(fleet: MakeFleet, flooding: Tls, ending: str) -> None:
    f = fleet(silent, pair=flooding.over(tcp_pair))
    future = f.ask_in_background(acquire(b"k", 1), 1)
    f.session(0).wait_commands(1)
    server: Any = f.session(0).sock
    flood = start(server.flood)
    try:
        eventually(lambda: server.sent > 8, "the flood goes on")
        sock = start(f.engine.close if ending == "close" else lambda: f.engine.detach(0)).result(SOON)
        if sock is not None:
            sock.close()
        assert future.result(SOON).values == (FAULT,)
    finally:
        f.session(0).close()
        flood.result(SOON)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux shows what was not read")
def test_tiny_records(fleet: MakeFleet, flooding: Tls) -> None:
    """Catches: a round that reads them all."""
    f = fleet(silent, pair=flooding.over(socket.socketpair))
    server: Any = f.session(0).sock
    f.session(0).send(b">1\r\n$6000\r\n")
    server.send_raw(b"".join(islice(server.records(DATA, b"x"), 6000)))
    f.ask(acquire(b"k", 1), need=1, timeout=0.0)
    assert not f.session(0).consumed()
    server.send_raw(b"".join(islice(server.records(DATA, b"\r\n"), 1)))
    f.until(lambda: f.connection_state(0).pushes == 1, "all are read in the end")


@pytest.mark.parametrize("how", ["close", "reset", "finish"])
def test_end_of_the_connection(fleet: MakeFleet, tls: Pair, how: str) -> None:
    f = fleet(silent, granting, pair=tls)
    future = f.ask_in_background(acquire(b"k", f.all), 2)
    getattr(f.session(0), how)()
    assert future.result(SOON).values[0] == FAULT
    assert f.until_broken(0)
    assert f.breaks.acquire(timeout=DEADLINE)
    f.session(1).close()
    assert f.until_broken(1), "noticed while idle, too"


def test_what_came_with_the_end_of_the_connection(fleet: MakeFleet, tls: Pair) -> None:
    """Catches: a flush that is overlooked behind a reply, as the connection ends in the same read."""
    f = fleet(silent, pair=tls)
    assert f.ask(acquire(b"k", 1), need=1, timeout=0.0).values == (NO_REPLY,)
    f.session(0).wait_commands(1)
    f.session(0).send(b":1\r\n>2\r\n$10\r\ninvalidate\r\n_\r\n")
    f.session(0).close()
    assert f.until_broken(0)
    assert f.connection_state(0).broken == FLUSHED


def test_nonsense(fleet: MakeFleet, tls: Pair) -> None:
    f = fleet(always(b"nonsense\r\n"), pair=tls)
    assert f.ask(acquire(b"k", 1), need=1).values == (FAULT,)
    assert f.until_broken(0)


def test_bytes_that_are_not_tls(fleet: MakeFleet, tls: Pair) -> None:
    f = fleet(silent, pair=tls)
    future = f.ask_in_background(acquire(b"k", 1), 1)
    # Past the TLS layer, straight into the socket.
    raw = f.session(0).sock.fileno()
    with open(raw, "wb", buffering=0, closefd=False) as wire:
        wire.write(b"+OK\r\n" * 20)
    assert future.result(SOON).values == (FAULT,)
    assert f.until_broken(0)


def test_kept_and_undone(fleet: MakeFleet, tls: Pair) -> None:
    f = fleet(silent, pair=tls)
    f.exchange([acquire(b"a", 1), release(b"b", 1, resend_for=LONG)], need=1, timeout=0.0)
    f.session(0).wait_commands(2)
    f.detach(0)
    assert f.session(0).commands == [set_words(b"a"), del_words(b"b"), del_words(b"a")]
    session = f.attach(0)
    f.until(lambda: session.commands, "the release is sent again")
    assert session.commands == [del_words(b"b")]


def test_close_while_a_thread_waits(fleet: MakeFleet, tls: Pair) -> None:
    f = fleet(silent, silent, pair=tls)
    future = f.ask_in_background(acquire(b"k", f.all), 2, wait=Wait.ALL)
    f.engine.close()
    assert future.result(SOON).values == (FAULT, FAULT)
    for master in range(2):
        assert f.session(master).ended.wait(DEADLINE)


def test_interrupt(fleet: MakeFleet, tls: Pair) -> None:
    def handler(*_: object) -> None:
        raise KeyboardInterrupt

    f = fleet(lambda words: b"" if words[1] == b"held" else b":1\r\n:3\r\n", pair=tls)
    main = threading.main_thread().ident
    assert main is not None
    before = signal.signal(signal.SIGUSR2, handler)

    def interrupt() -> None:
        f.session(0).wait_commands(1)
        signal.pthread_kill(main, signal.SIGUSR2)

    try:
        helper = start(interrupt)
        with Stopwatch() as watch, pytest.raises(KeyboardInterrupt):
            f.ask(acquire(b"held", 1, resend_for=LONG), 1)
        helper.result(SOON)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert watch.seconds < SOON
    if f.ask(acquire(b"next", 1), 1).values != (3,):
        # Raised inside the TLS layer, it cost the connection: what had been read is unknown.
        assert f.until_broken(0)
        f.reattach(0)
        assert f.ask(acquire(b"next", 1), 1).values == (3,)


@pytest.fixture
def callers_read(engine_class: type[Engine]) -> None:
    """Signal handlers run in the main thread, which must be one that may read."""
    if engine_class is PureEngine:
        pytest.skip("the pure engine reads in a thread of its own, which runs no handlers")


@pytest.fixture
def in_a_socket(callers_read: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """``in_a_socket(handler)``: once, as the main thread next reads, it runs a signal handler."""
    receive = TlsSocket.recv
    handlers: list[Callable[[], None]] = []

    def handling(sock: TlsSocket, size: int) -> bytes:
        if handlers and threading.current_thread() is threading.main_thread():
            handlers.pop()()
        return receive(sock, size)

    monkeypatch.setattr(TlsSocket, "recv", handling)
    return handlers.append


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("turn", range(5))
def test_interrupt_is_raised_in_the_thread_of_its_handler(
    fleet: MakeFleet, tls: Pair, in_a_socket: Callable[[Callable[[], None]], None], turn: int
) -> None:
    """The main thread leads, and the end of the connection ends the exchanges of all threads."""
    f = fleet(silent, pair=tls)

    def push_when_all_wait() -> list[Votes]:
        f.session(0).wait_commands(1)
        others = [f.ask_in_background(acquire(b"other", 1), 1) for _ in range(6)]
        in_a_socket(interrupt)
        f.session(0).send(b">1\r\n+")

        def ended() -> bool:
            f.session(0).send(b"x")  # a part of the push, until the main thread is the one that reads it
            return others[0].done()

        eventually(ended, "the main thread reads")
        return [other.result(SOON) for other in others]

    helper = start(push_when_all_wait)
    with pytest.raises(KeyboardInterrupt):
        f.ask(acquire(b"main", 1), 1)
    assert [votes.values for votes in helper.result(SOON)] == [(FAULT,)] * 6


@pytest.mark.parametrize("operation", ["drain", "maintain"])
def test_interrupt_of_other_calls(
    fleet: MakeFleet, tls: Pair, in_a_socket: Callable[[Callable[[], None]], None], operation: str
) -> None:
    """Catches: an interrupt that a later call raises, or none."""
    f = fleet(silent, pair=tls)
    f.ask(acquire(b"k", 1), need=0)
    f.session(0).wait_commands(1)
    in_a_socket(interrupt)
    f.session(0).send(b">1\r\n+x\r\n")
    with pytest.raises(KeyboardInterrupt):
        f.until(lambda: operation == "drain" and f.engine.drain(LONG) and False, "the interrupt is raised")
    f.ask(acquire(b"next", 1), 1, timeout=0.0)


@pytest.mark.parametrize("ending", ["return", "raise"])
def test_handler_that_releases_many_locks_inside_of_a_socket(
    fleet: MakeFleet, tls: Pair, in_a_socket: Callable[[Callable[[], None]], None], ending: str
) -> None:
    """All releases arrive. Catches: those behind one that raises are lost, or each calls the next one."""
    f = fleet(silent, pair=tls)
    many = keys(2000)

    def handler() -> None:
        f.exchange([release(key, 1, resend_for=LONG) for key in many], need=1)
        if ending == "raise":
            raise KeyboardInterrupt

    f.ask(acquire(b"k", 1), need=0)
    in_a_socket(handler)
    f.session(0).send(b">1\r\n+x\r\n")
    session = f.session(0)
    if ending == "raise":
        with pytest.raises(KeyboardInterrupt):
            f.until(lambda: False, "the handler raises")
        f.until_broken(0)
        session = f.reattach(0)
    f.until(lambda: {words[1] for words in session.commands} >= set(many), "all releases arrive")


@pytest.mark.parametrize("ending", ["close", "detach", "drain", "maintain"])
def test_handler_that_ends_the_engine_inside_of_a_socket(
    fleet: MakeFleet, tls: Pair, callers_read: None, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    # As a signal handler may that runs while the socket reads: it must not wait for its own thread.
    receive = TlsSocket.recv
    called: list[bool | None] = []
    arguments: dict[str, tuple[float]] = {"detach": (0,), "drain": (LONG,)}

    def handling(sock: TlsSocket, size: int) -> bytes:
        if not called and threading.current_thread() is threading.main_thread():
            called.append(None)
            called.append(getattr(f.engine, ending)(*arguments.get(ending, ())))
        return receive(sock, size)

    f = fleet(always(b":3\r\n"), pair=tls)
    monkeypatch.setattr(TlsSocket, "recv", handling)
    with Stopwatch() as watch:
        assert f.ask(acquire(b"k", 1), 1).values in ((3,), (FAULT,))
    assert called == [None, False if ending == "drain" else None]
    assert watch.seconds < SOON
    assert f.connection_state(0).attached is (ending not in ("close", "detach"))


@needs_fork
def test_fork_inside_of_a_socket(
    fleet: MakeFleet, tls: Pair, callers_read: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a signal handler may: the child goes on in the middle of the engine.
    receive = TlsSocket.recv
    pids: list[int] = []

    def forking(sock: TlsSocket, size: int) -> bytes:
        received = receive(sock, size)
        if not pids:
            pids.append(fork_here())
            if not pids[0]:
                f.engine.after_fork_in_child()
        return received

    f = fleet(always(b":3\r\n"), pair=tls)
    monkeypatch.setattr(TlsSocket, "recv", forking)
    code = 1
    try:
        votes = f.ask(acquire(b"k", 1), 1)
        assert pids
        if pids[0]:
            assert votes.values == (3,)
            assert exit_code(pids[0]) == 0
        else:
            assert votes.values in ((FAULT,), (3,))  # the engine, which is abandoned, or the reply
            assert f.ask(acquire(b"next", 1), 1).values == (FAULT,)
            code = 0
    finally:
        if pids == [0]:
            os._exit(code)
    assert f.ask(acquire(b"next", 1), 1).values == (3,)
