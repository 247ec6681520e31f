"""A child of fork holds nothing of its parent's, can use the same client, and disturbs no other process."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.engines import each_once
from support.forking import exit_code, fork_child, fork_here, fork_in_c, needs_fork
from support.inside import core_of
from support.makers import MakeClient, Raw
from support.moments import moments
from support.signalling import interrupt
from support.thorough import amount
from support.waiting import DEADLINE, PROCESS_DEADLINE, eventually, start

from redlock_fast import ClientClosed, FastRedlock, Lock, LockLost, RedlockError
from redlock_fast.algorithm import fencing
from redlock_fast.algorithm.local_queue import LocalQueue
from redlock_fast.algorithm.policy import lease_clock
from redlock_fast.algorithm.tokens import TOKEN_SIZE
from redlock_fast.embedded import Masters
from redlock_fast.locks import auto_extend
from redlock_fast.masters import client_state
from redlock_fast.masters.client_state import clients_with_leases

pytestmark = needs_fork

Fork = Callable[[Callable[[], None]], None]

TTL = 60.0
#: Children of a test that something goes wrong in by chance, and its seconds: on a busy machine there are
#: fewer children. By hand, with --timeout=0, some thousands.
FORKS = int(os.environ.get("REDLOCK_FAST_TEST_FORKS", amount(4, 150, twice=30)))
LONGEST = math.inf if "REDLOCK_FAST_TEST_FORKS" in os.environ else 15.0


def os_fork(action: Callable[[], None]) -> None:
    """``action`` in a child, which is waited for and must not have raised or hung."""
    pid = fork_child(action)
    assert exit_code(pid) == 0, "the child failed, or was killed because it hung"


def multiprocessing_fork(action: Callable[[], None]) -> None:
    """The same through multiprocessing, which runs more of Python in the child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = multiprocessing.get_context("fork").Process(target=action)
        process.start()
    process.join(DEADLINE)
    if process.is_alive():
        process.kill()
        process.join()
    assert process.exitcode == 0, "the child failed, or was killed because it hung"


def c_fork(action: Callable[[], None]) -> None:
    """The same by a fork in C, which no hook of Python sees."""
    assert exit_code(fork_child(action, fork_in_c)) == 0, "the child failed, or was killed because it hung"


@pytest.fixture(params=[os_fork, multiprocessing_fork, c_fork])
def fork(request: pytest.FixtureRequest) -> Fork:
    made: Fork = request.param
    return made


def nothing_left(masters: Masters) -> None:
    eventually(lambda: all(m.ask("DBSIZE") == ":0" for m in masters), "no key of ours is left")


def held(client: FastRedlock, masters: Masters, key: str) -> Lock:
    """A lock whose key is on all masters."""
    lock = client.lock(key, TTL)
    assert lock.acquire()
    eventually(lambda: all(m.ask(f"EXISTS {key}") == ":1" for m in masters), "all masters have the key")
    return lock


def test_child_does_not_hold_its_parents_lock(
    masters: Masters, connected: MakeClient, raw: Raw, fork: Fork
) -> None:
    """Catches: a copied lease: the child releases or extends what is its parent's."""
    c = connected(masters)
    lock = held(c, masters, "parents")
    token = lock.token

    def child() -> None:
        assert not lock.locked()
        assert lock.remaining() == 0.0
        assert lock.token is None
        assert "not held" in repr(lock)
        assert lock.release() is False
        with pytest.raises(LockLost):
            lock.extend()
        assert lock.acquire(blocking=False) is False  # it is the parent's
        assert c.locked("parents")

    fork(child)
    assert lock.locked()
    assert lock.token == token
    assert [server.get("parents") for server in raw(masters)] == [token] * 5
    lock.extend()
    assert lock.release()
    nothing_left(masters)


def test_child_that_leaves_the_inherited_with_deletes_nothing(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    """Catches: the exit of the child's copy of a `with` ending the parent's lock."""
    c = connected(masters)
    lock = c.lock("inherited", TTL)
    pid = -1
    try:
        with lock:
            eventually(lambda: all(m.ask("DBSIZE") == ":1" for m in masters), "all masters have the key")
            pid = fork_here()
            if pid:
                assert exit_code(pid) == 0
                assert [server.get("inherited") for server in raw(masters)] == [lock.token] * 5
    except LockLost:
        if pid == 0:
            os._exit(0)
        raise
    finally:
        if pid == 0:
            os._exit(1)  # leaving the body without a lock must not pass unnoticed
    nothing_left(masters)


@pytest.mark.parametrize("timeout", [-1, 4.0], ids=["no end", "timeout"])
@pytest.mark.parametrize(
    ("options", "file"),
    [({"fencing": True}, fencing.__file__), ({"auto_extend": True}, auto_extend.__file__)],
    ids=["fenced", "renewed"],
)
def test_a_handler_forks_while_a_grant_is_recorded(
    masters: Masters, connected: MakeClient, options: dict[str, Any], file: str, timeout: float
) -> None:
    """The child does not get what its parent is granted."""
    c = connected(masters, decide="all", node_timeout=5.0)
    lock = c.lock("forked", TTL, **options)
    with lock:
        pass
    pids: list[int] = []

    def acquire() -> None:
        try:
            lock.acquire(timeout=timeout)
        except ClientClosed:
            if pids == [0]:
                os._exit(2 if "fencing" in options and core_of(c).client_state.held else 0)
            raise
        if pids == [0]:
            os._exit(1)

    def fork() -> None:
        pids.append(fork_here())

    def check() -> None:
        assert exit_code(pids.pop()) == 0
        assert lock.locked()
        assert lock.release()

    assert moments(acquire, fork, check, file.__eq__) > 0


def test_child_that_a_signal_interrupts_at_its_begin_holds_nothing(
    valkey: Masters, connected: MakeClient, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a handler that raises in a hook of fork: the child keeps the leases and connections."""
    c = connected(valkey)
    lock = held(c, valkey, "parents")
    forget = LocalQueue.after_fork_in_child

    def forget_interrupted(queue: LocalQueue) -> None:
        signal.raise_signal(signal.SIGUSR1)
        forget(queue)

    def child() -> None:
        assert not lock.locked()
        assert lock.release() is False
        assert c.lock("childs", TTL).acquire()
        assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "its signals are let in"

    monkeypatch.setattr(LocalQueue, "after_fork_in_child", forget_interrupted)
    handler = signal.signal(signal.SIGUSR1, lambda *_: interrupt())
    try:
        os_fork(child)
    finally:
        signal.signal(signal.SIGUSR1, handler)
    assert [server.get("parents") for server in raw(valkey)] == [lock.token] * 5
    assert lock.release()


def test_child_forgets_the_client_of_its_parent(valkey: Masters, connected: MakeClient, fork: Fork) -> None:
    """The parent has a lease, and the child drops the client. Catches: a client that stays in the child."""
    clients = [connected(valkey)]
    lock = clients[0].lock("parents", TTL)
    assert lock.acquire()

    def child() -> None:
        assert not lock.locked()
        assert clients_with_leases == {}

    fork(child)
    assert lock.release()


def test_child_uses_the_same_client(masters: Masters, connected: MakeClient, fork: Fork) -> None:
    """Catches: two processes on one connection, and random numbers that both drew in advance."""
    c = connected(masters)
    with c.lock("warm", TTL):
        pass
    inherited = c.lock("inherited", TTL)
    readable, writable = os.pipe()

    def child() -> None:
        assert inherited.acquire()
        assert inherited.extend() > 0
        os.write(writable, random_part(inherited))
        assert inherited.release()
        for number in range(100):
            with c.lock(f"child:{number}", TTL) as lock:
                os.write(writable, random_part(lock))
        eventually(lambda: [master.connections for master in c.health()] == [1] * 5, "all are connected")
        c.close()

    try:
        fork(child)
        tokens = {os.read(readable, TOKEN_SIZE) for _ in range(101)}
    finally:
        os.close(readable)
        os.close(writable)
    for number in range(101):
        with c.lock(f"parent:{number}", TTL) as lock:
            tokens.add(random_part(lock))
    assert len(tokens) == 202
    assert [master.connections for master in c.health()] == [1] * 5, "the parent had to connect again"
    nothing_left(masters)


def random_part(lock: Lock) -> bytes:
    assert lock.token
    return lock.token[:TOKEN_SIZE]


def test_both_go_on_at_the_same_time(valkey: Masters, connected: MakeClient) -> None:
    """Catches: replies of the one that reach the other, while both contend for one lock."""
    c = connected(valkey)

    def contend() -> None:
        for number in range(30):
            with c.lock("contended", TTL, timeout=DEADLINE):
                pass
            with c.lock(f"own:{os.getpid()}:{number}", TTL, timeout=DEADLINE):
                pass

    children = [fork_child(contend) for _ in range(3)]
    try:
        contend()
    finally:
        codes = [exit_code(pid) for pid in children]
    assert codes == [0] * 3
    assert [master.faults for master in c.health()] == [0] * 5
    nothing_left(valkey)


@each_once
def test_fork_in_the_middle_of_exchanges(masters: Masters, connected: MakeClient) -> None:
    """Again and again, while threads wait for replies. Catches: a child that waits for a thread that it
    does not have, and a parent whose threads lose their replies.
    """
    c = connected(masters)
    stop = threading.Event()

    def work(name: int) -> int:
        done = 0
        while not stop.is_set():
            with c.lock(f"thread:{name}", TTL):
                done += 1
        return done

    def child() -> None:
        with c.lock("child", TTL, timeout=DEADLINE):
            pass
        c.close()

    workers = [start(partial(work, name)) for name in range(3)]
    try:
        for _ in range(amount(4, 30, twice=12)):
            os_fork(child)
    finally:
        stop.set()
    assert all(worker.result(DEADLINE) for worker in workers)
    assert c.stats().expired == 0
    assert [(master.faults, master.connections) for master in c.health()] == [(0, 1)] * 5
    nothing_left(masters)


def fork_beside(count: int, c: FastRedlock, work: Callable[[int], None], forks: int = FORKS) -> None:
    """``forks`` children, one after the other, that use the client while ``count`` threads ``work``."""
    stop = threading.Event()

    def go_on(name: int) -> None:
        while not stop.is_set():
            work(name)

    def child() -> None:
        with c.lock(f"child:{os.getpid()}", TTL, timeout=DEADLINE):
            pass

    end = time.monotonic() + LONGEST
    workers = [start(partial(go_on, name)) for name in range(count)]
    try:
        for _ in range(forks):
            os_fork(child)
            if time.monotonic() > end:
                break
    finally:
        stop.set()
    for worker in workers:
        worker.result(DEADLINE)


@each_once
def test_forks_beside_many_busy_threads(masters: Masters, connected: MakeClient) -> None:
    """Catches: a child with a copy of something that another thread was about to change. It hangs or frees
    memory twice: one child of 700 did, before src/fork.c.
    """
    c = connected(masters)

    def work(name: int) -> None:
        with c.lock(f"thread:{name}", TTL):
            pass

    fork_beside(16, c, work)


@each_once
def test_forks_beside_connections_that_come_and_go(
    masters: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where the parent gives up one connection after the other, and opens it again."""
    c = connected(masters)
    parent, turns = os.getpid(), itertools.cycle(range(5))
    connections = core_of(c).masters.connector.connections
    check = connections.check

    def impatient(number: int, *args: Any) -> bool:
        if os.getpid() == parent and not number and (lost := next(turns)) in attached():
            connections.give_up(lost, "given up by the test")
        return check(number, *args)

    def attached() -> list[int]:
        masters = connections.roster.masters
        return [number for number, master in enumerate(masters) if master.link.attached]

    def work(name: int) -> None:
        with contextlib.suppress(RedlockError), c.lock(f"thread:{name}", TTL, timeout=1.0):
            pass

    monkeypatch.setattr(connections, "check", impatient)
    fork_beside(8, c, work, FORKS // 3)
    eventually(lambda: sum(master.connections for master in c.health()) > 5, "connections come and go")


def test_child_of_a_parent_that_is_connecting(valkey: Masters, client: MakeClient) -> None:
    """Catches: a child that waits for a connection which only a thread of its parent would make."""
    for _ in range(amount(4, 10, twice=10)):
        c = client(valkey)
        core_of(c).masters.connector.start()

        def child(c: FastRedlock = c) -> None:
            with c.lock("early", TTL, timeout=DEADLINE):
                pass
            c.close()

        os_fork(child)
        with c.lock("early", TTL):
            pass
        c.close()
    nothing_left(valkey)


def test_child_of_a_closed_or_unused_client(valkey: Masters, client: MakeClient) -> None:
    """Catches: a fork that opens what was closed, or that trips over what was never opened."""
    closed, unused = client(valkey), client(valkey)
    with closed.lock("closed", TTL):
        pass
    closed.close()

    def child() -> None:
        with pytest.raises(ClientClosed):
            closed.acquire("closed", TTL)
        with unused.lock("unused", TTL):
            pass
        unused.close()

    os_fork(child)
    with unused.lock("unused", TTL):
        pass
    nothing_left(valkey)


def test_fork_by_a_signal_handler_in_the_middle_of_an_acquire(valkey: Masters, connected: MakeClient) -> None:
    """Catches: a child that goes on waiting for replies to what only its parent asked."""
    c = connected(valkey, node_timeout=DEADLINE)
    pids: list[int] = []
    main, hung = threading.get_ident(), list(valkey)[:3]

    def handle(number: int, frame: FrameType | None) -> None:
        pids.append(fork_here())
        for master in hung if pids[0] else ():
            master.resume()

    def signal_main() -> None:
        eventually(lambda: all(master.pending for master in c.health()[:3]), "the acquire waits")
        signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    for master in hung:
        master.pause()
    try:
        signalling = start(signal_main)
        lock = c.acquire("forked", TTL, blocking=False)
    finally:
        if 0 in pids:
            os._exit(0)  # the child: whichever way its copy of the acquire ended
        signal.signal(signal.SIGUSR1, before)
        for master in hung:
            master.resume()
    signalling.result(DEADLINE)
    assert [exit_code(pid) for pid in pids] == [0]
    assert lock, "the masters answer the parent when they go on"
    assert lock.release()
    with c.lock("forked", TTL):
        pass
    nothing_left(valkey)


def test_fork_by_a_signal_handler_while_a_granted_acquire_waits_for_all(
    valkey: Masters, connected: MakeClient
) -> None:
    """Catches: two processes that enter the block of one lock."""
    c = connected(valkey, decide="all", node_timeout=DEADLINE / 2)
    pids: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: pids.append(fork_here()))
    main, code = threading.get_ident(), 1
    valkey[4].pause()

    def fork_when_granted() -> None:
        keys = [valkey[number] for number in range(4)]
        eventually(lambda: all(master.ask("EXISTS forked") == ":1" for master in keys), "four have granted")
        eventually(lambda: not any(m.pending for m in c.health()[:4]), "their votes are counted")
        signal.pthread_kill(main, signal.SIGUSR1)
        eventually(lambda: pids, "the handler forks")
        valkey[4].resume()

    forking = start(fork_when_granted)
    lock = c.lock("forked", TTL)
    try:
        lock.acquire(blocking=False)
    except ClientClosed:
        code = 0
    finally:
        if pids == [0]:
            os._exit(code)
        signal.signal(signal.SIGUSR1, before)
    forking.result(DEADLINE)
    assert [exit_code(pid) for pid in pids] == [0], "the child has its parent's lock"
    assert lock.release()
    nothing_left(valkey)


@pytest.mark.usefixtures("all_masters")
def test_fork_by_a_signal_handler_right_after_the_exchange_of_an_acquire(
    valkey: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the exchange lets signals in. Catches: a child that releases its parent's lock."""
    c = connected(valkey)
    pids: list[int] = []
    engine = core_of(c).masters.engine

    class Forking:
        def __getattr__(self, name: str) -> object:
            return getattr(engine, name)

        def exchange(self, *words: Any) -> Any:
            answers = engine.exchange(*words)
            pids.append(fork_here())
            return answers

    lock, code = c.lock("forked", TTL), 1
    with monkeypatch.context() as patch:
        patch.setattr(core_of(c).masters, "engine", Forking())
        try:
            assert lock.acquire(blocking=False)
        except ClientClosed:
            code = 1 if core_of(c).client_state.held else 0
        finally:
            if pids == [0]:
                os._exit(code)
    assert [exit_code(pid) for pid in pids] == [0]
    assert lock.release()
    nothing_left(valkey)


@pytest.mark.usefixtures("all_masters")
@pytest.mark.parametrize("first", ["parent", "child"])
def test_fork_by_a_signal_handler_before_the_exchange_of_an_acquire(
    valkey: Masters, connected: MakeClient, raw: Raw, first: str
) -> None:
    """Catches: a child that gets its parent's token, or releases it. The handler uses the client.

    ``first``: the process that goes on with the acquire.
    """
    pids: list[int] = []
    codes: list[int] = []
    armed = False
    servers = raw(valkey)

    def asked_for() -> list[bytes]:
        entries = [entry for server in servers for entry in server.slowlog_get(1000)]
        return [entry["command"] for entry in entries if b"forked" in entry["command"]]

    def clock() -> float:
        """The first step of an attempt, whose token is drawn already."""
        nonlocal armed
        if armed:
            armed = False
            pids.append(fork_here())
            if pids == [0]:
                if first == "parent":
                    eventually(
                        lambda: all(m.ask("EXISTS forked") == ":1" for m in valkey), "the parent has it"
                    )
                c.connect()
                eventually(lambda: all(m.state == "connected" for m in c.health()), "the child connects")
            elif first == "child":
                codes.append(exit_code(pids[0]))
                assert asked_for() == []
        return lease_clock()

    for server in servers:
        server.config_set("slowlog-log-slower-than", 0)  # it has all commands then
        server.slowlog_reset()
    c = connected(valkey, clock=clock, decide="all")
    with c.lock("warm", TTL):
        pass
    lock = c.lock("forked", TTL)
    armed, code = True, 1
    try:
        assert lock.acquire(blocking=False)
    except ClientClosed:
        code = 0
    finally:
        if 0 in pids:
            c.close()
            os._exit(code)
    assert (codes or [exit_code(pids[0])]) == [0]
    assert [server.get("forked") for server in servers] == [lock.token] * 5
    for server in servers:
        server.config_set("slowlog-log-slower-than", 10_000)
    assert lock.release()
    nothing_left(valkey)


@pytest.mark.parametrize("held", [False, True], ids=["mutex free", "mutex held"])
def test_fork_by_a_signal_handler_in_the_middle_of_a_change(
    valkey: Masters, connected: MakeClient, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    """Catches: a child in which the change goes on, by what only its parent knows of the masters.

    ``held``: by another thread, at the moment of the fork. It is the mutex that the change waits for.
    """
    monkeypatch.setattr("redlock_fast.masters.change.GRACE", DEADLINE)
    old, new = valkey.urls[:3], valkey.urls[2:]
    c = connected(old)
    states = core_of(c).masters.connector.roster.masters
    pids: list[int] = []
    main = threading.get_ident()

    def fork_in_a_wait() -> bool:
        monitor = core_of(c).masters.connector.monitor
        with monitor.mutex if held else contextlib.nullcontext():
            if not monitor.changed._condition._waiters:  # no signal interrupts the end of a wait: CPython
                return False
            signal.pthread_kill(main, signal.SIGUSR1)
            eventually(lambda: pids, "the handler forks")
            return True

    def fork_during_the_change() -> None:
        eventually(lambda: len(states) == 5 and states[3].link.attached, "the new list has a quorum")
        eventually(fork_in_a_wait, "the change waits")

    before = signal.signal(signal.SIGUSR1, lambda *_: pids.append(fork_here()))
    valkey[4].pause()  # the change waits for it
    code = 1
    try:
        forking = start(fork_during_the_change)
        while not pids:  # a busy machine may be too late for a change; the child waits for the end of its
            c.reconfigure(old)
            c.reconfigure(new, joint_with=old, timeout=DEADLINE / 10)
    except ClientClosed:
        if 0 in pids and core_of(c).masters.connector.roster.own().keys() == {0, 1, 2}:
            with c.lock("child", TTL):
                code = 0
    finally:
        if 0 in pids:
            os._exit(code)
        signal.signal(signal.SIGUSR1, before)
        valkey[4].resume()
    forking.result()
    assert [exit_code(pid) for pid in pids] == [0]
    assert len(c.health()) == 5
    nothing_left(valkey)


@pytest.mark.skipif(
    client_state.__file__.endswith(".py"), reason="CPython hangs in such a child, if nothing is compiled"
)
@pytest.mark.parametrize("library", ["CDLL", "PyDLL"])
def test_a_fork_in_c_that_is_expected(valkey: Masters, engine_name: str, library: str) -> None:
    """The interpreter is whole in the child, whatever other threads had at that moment.

    Catches: a child that waits for the GIL of a thread that it lacks.
    """
    done = subprocess.run(
        [sys.executable, "-m", "support.worker_expected_fork", engine_name, library, *valkey.urls],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=PROCESS_DEADLINE,
    )
    assert json.loads(done.stdout) == {"children": 20, "held": True}


def test_fork_while_another_thread_closes_a_client(valkey: Masters, client: MakeClient) -> None:
    """Catches: a socket that is closed already and makes the child keep everything of its parent's."""
    one, other = client(valkey), client(valkey)
    for c in (one, other):
        with c.lock("before", TTL):
            pass
        with socket.socket() as closed:
            core_of(c).masters.connector.connections.lingering._open.append((0.0, closed, (0, 0)))

    def child() -> None:
        for c in (one, other):
            with c.lock("child", TTL, timeout=DEADLINE):
                pass
            assert core_of(c).client_state.generation() == 1
            c.close()

    os_fork(child)
    nothing_left(valkey)


def test_fork_in_the_middle_of_an_acquire_of_the_same_lock(valkey: Masters, connected: MakeClient) -> None:
    """The child's copy says that it is being acquired, by a thread that the child does not have."""
    c = connected(valkey)
    other = c.lock("r", TTL)
    assert other.acquire()
    lock = c.lock("r", TTL)
    waiting = start(lambda: lock.acquire(timeout=DEADLINE))
    eventually(lambda: lock._acquiring, "a thread acquires it")

    def child() -> None:
        assert not lock.locked()
        assert lock.release() is False
        assert lock.acquire(blocking=False) is False  # and not: acquired by a thread with this object
        c.close()

    assert exit_code(fork_child(child)) == 0
    assert other.release()
    assert waiting.result(DEADLINE) is True, "the parent's acquire went on"
    assert lock.locked()
    assert lock.release()
    nothing_left(valkey)
