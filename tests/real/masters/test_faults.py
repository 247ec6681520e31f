"""Masters that are late, hung, killed and cut off: a minority of them is not noticed, a majority is an error,
and nothing of ours stays behind.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from support.counting import begin, counting, end
from support.inside import core_of
from support.keys import wipe
from support.proxy import Proxy, fixed, jitter
from support.thorough import amount
from support.waiting import DEADLINE, PROCESS_DEADLINE, eventually, start

from redlock_fast import FastRedlock, Lock, LockLost, QuorumUnavailable
from redlock_fast.embedded import Master, Masters

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

#: The times of a service that is not patient: the library's defaults.
QUICK: dict[str, Any] = {"node_timeout": 0.05, "connect_timeout": 1.0}
#: No key of these tests expires while a client waits for it.
TTL = 60.0
TESTS = Path(__file__).parents[2]


def with_keys(masters: Masters) -> list[int]:
    """Which of the masters that run have keys."""
    return [n for n, master in enumerate(masters) if master.pid and master.ask("DBSIZE") != ":0"]


def nothing_left(masters: Masters, deadline: float = DEADLINE) -> None:
    eventually(lambda: not with_keys(masters), "no key of ours is left", deadline=deadline)


def states(client: FastRedlock) -> list[str]:
    return [master.state for master in client.health()]


def all_connected(client: FastRedlock) -> None:
    """Wait until all masters are connected again; replies are read in the next exchange."""
    client.connect()

    def strong() -> bool:
        core_of(client).masters.engine.maintain()
        return set(states(client)) == {"connected"}

    eventually(strong, f"all masters are connected, but: {client.health()}")


def cycle(client: FastRedlock, key: str) -> float:
    """One acquire and one release; how long they took."""
    began = time.perf_counter()
    lock = client.lock(key, TTL)
    assert lock.acquire()
    assert lock.release()
    return time.perf_counter() - began


def sooner(seconds: float, measure: Callable[[], float], attempts: int = 10) -> None:
    """``measure()`` is within ``seconds``; a busy machine may need more than one attempt."""
    taken = []
    for _ in range(attempts):
        taken.append(measure())
        if taken[-1] <= seconds:
            return
    pytest.fail(f"at most {seconds:.4f} s expected, got {taken}")


@pytest.fixture
def behind(masters: Masters) -> Iterator[Callable[..., list[Proxy]]]:
    """``behind(3, 4, ...)``: a proxy before each of these masters."""
    with contextlib.ExitStack() as stack:

        def make(*numbers: int, **options: Any) -> list[Proxy]:
            return [stack.enter_context(Proxy(masters[n].port, **options)) for n in numbers]

        yield make


def urls(masters: Masters, proxies: list[Proxy]) -> list[str]:
    """The last masters' proxies instead of them."""
    return [*masters.urls[: len(masters) - len(proxies)], *(proxy.url for proxy in proxies)]


# --- late masters --------------------------------------------------------------------------------


def test_thousands_of_cycles_leave_nothing_on_late_masters(valkey: Masters, client: MakeClient) -> None:
    """Catches: a release that overtakes its SET, and a straggler that no clean-up reaches."""
    cycles = amount(400, 5_000, twice=1_500)
    with Proxy(valkey[3].port, jitter(3, 0.02)) as three, Proxy(valkey[4].port, jitter(4, 0.02)) as four:
        c = client(urls(valkey, [three, four]), node_timeout=1.0)
        all_connected(c)
        owed = 0
        for number in range(cycles):
            cycle(c, f"jitter:{number}")
            if number % 100 == 0:
                owed = max(owed, *(master.pending for master in c.health()[3:]))
        assert owed, "every cycle waited for the late masters: nothing was tested"
        assert c.stats().acquired == c.stats().released == cycles
        nothing_left(valkey)
        for number in range(20):
            cycle(c, f"close:{number}")
        c.close()
        nothing_left(valkey)


#: Processes that count, threads of each, and how often each thread counts.
WORKERS, THREADS, CYCLES = amount(3, 8, twice=4), 2, 16


def spawn(valkey: Masters, where: list[str], engine: str, counter: Path) -> subprocess.Popen[str]:
    setting = {
        "urls": where, "engine": engine, "path": str(counter), "cycles": CYCLES, "threads": THREADS,
        "timeout": 60.0,
    }  # fmt: skip
    return counting("worker_counter", setting)


def test_counter_of_many_processes_is_exact(valkey: Masters, engine_name: str, tmp_path: Path) -> None:
    """One master 20 ms late, one killed half-way. Catches: two holders at once."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    with Proxy(valkey[4].port, fixed(0.01)) as late:
        workers = [spawn(valkey, urls(valkey, [late]), engine_name, counter) for _ in range(WORKERS)]
        try:
            begin(workers)
            # An empty file is one that is just being written.
            half = WORKERS * THREADS * CYCLES // 2
            eventually(lambda: int(counter.read_text() or 0) >= half, "half of the work is done", deadline=60)
            valkey[0].kill()
            results = [json.loads(worker.communicate(timeout=PROCESS_DEADLINE)[0]) for worker in workers]
        finally:
            end(workers)
        assert [result["errors"] for result in results] == [[]] * WORKERS
        assert sum(result["expired"] for result in results) == 0
        assert int(counter.read_text()) == sum(result["acquired"] for result in results) == 2 * half
        nothing_left(valkey)


# --- hung masters --------------------------------------------------------------------------------


def until_lagging(client: FastRedlock, *numbers: int) -> None:
    """Work on until these masters are left out."""

    def lag() -> bool:
        cycle(client, "until lagging")
        return all(client.health()[number].state == "lagging" for number in numbers)

    eventually(lag, "the stopped masters are left out")


def test_hung_minority_costs_nothing_after_the_first_timeout(valkey: Masters, client: MakeClient) -> None:
    """Catches: waiting for a hung master each time, and owing it more and more."""
    c = client(valkey, **QUICK)
    all_connected(c)

    def slowdown() -> float:
        healthy: list[float] = []
        stopped: list[float] = []
        for number in range(6):
            healthy += [cycle(c, f"healthy:{n}") for n in range(100)]
            hung = number % 5
            valkey[hung].pause()
            until_lagging(c, hung)
            owed = c.health()[hung].pending
            stopped += [cycle(c, f"stopped:{n}") for n in range(100)]
            # A busy machine may let others lag too, and then all are asked.
            assert c.health()[hung].pending <= owed + 20, "of the 200 commands that 100 cycles send"
            valkey[hung].resume()
            all_connected(c)
        return statistics.median(stopped) / statistics.median(healthy)

    sooner(2.0, slowdown)
    nothing_left(valkey)


@pytest.mark.parametrize("timeout", [0.0, 0.3])
def test_hung_majority_is_reported_in_time(valkey: Masters, client: MakeClient, timeout: float) -> None:
    """Catches: a deadline that the retries or the clean-up outlive, and a clean-up that is forgotten."""
    c = client(valkey, **QUICK)
    all_connected(c)
    allowed = timeout or QUICK["node_timeout"]

    def refused() -> float:
        began = time.perf_counter()
        with pytest.raises(QuorumUnavailable) as caught:
            c.acquire("majority", TTL, timeout=timeout)
        taken = time.perf_counter() - began
        assert {cause.master for cause in caught.value.causes} >= {m.name for m in c.health()[2:]}
        return taken

    for master in list(valkey)[2:]:
        master.pause()
    for _ in range(3):
        sooner(allowed + 0.1, refused)
    for master in list(valkey)[2:]:
        master.resume()
    nothing_left(valkey)
    cycle(c, "majority")


def on(master: Master, key: str) -> bool:
    return master.ask(f"EXISTS {key}") == ":1"


def test_connection_that_hangs_is_replaced_and_leaves_no_orphan(masters: Masters, client: MakeClient) -> None:
    """Catches: locks that stay on masters which executed the SET after their connection was given up."""
    clients = [client(masters, node_timeout=0.05, socket_timeout=0.5) for _ in range(5)]
    for c in clients:
        all_connected(c)
    hung = [1, 4]
    for number in hung:
        masters[number].pause()
    locks = [c.lock(f"hung:{number}", TTL) for number, c in enumerate(clients)]
    assert [lock.acquire() for lock in locks] == [True] * 5
    let_go = {"connecting", "down"}
    eventually(lambda: all({states(c)[n] for n in hung} <= let_go for c in clients), "they are let go")
    for number in hung:
        masters[number].resume()
    for c in clients:
        all_connected(c)
        assert [master.connections for master in c.health()] == [1, 2, 1, 1, 2]
    # They executed the SETs late, and keep the keys: the locks are held.
    eventually(lambda: [master.ask("DBSIZE") for master in masters] == [":5"] * 5, "all have the keys")
    assert [lock.release() for lock in locks] == [True] * 5
    nothing_left(masters)


# --- killed masters ------------------------------------------------------------------------------


def test_killed_minority_comes_back_unnoticed(masters: Masters, client: MakeClient) -> None:
    """Catches: an error of one master that reaches a caller, and a master that is never connected again."""
    c = client(masters, restart_guard="off")
    all_connected(c)
    stop = threading.Event()

    def work(name: int) -> int:
        done = 0
        while not stop.is_set():
            cycle(c, f"worker:{name}")
            done += 1
        return done

    workers = [start(partial(work, name)) for name in range(8)]
    try:
        for number in (1, 3):
            masters[number].kill()
        eventually(lambda: states(c)[1] == states(c)[3] == "down", "the loss is seen")
        for number in (1, 3):
            masters[number].restart()
        all_connected(c)
    finally:
        stop.set()
    assert all(worker.result(DEADLINE) for worker in workers)
    with c.lock("again", TTL):
        eventually(lambda: all(on(master, "again") for master in masters), "all masters work again")
    nothing_left(masters)
    assert c.stats().expired == c.stats().unavailable == 0


def test_every_operation_with_a_dead_minority(masters: Masters, client: MakeClient) -> None:
    """Catches: a dead master whose missing vote counts as the others' answer."""
    c = client(masters)
    all_connected(c)
    for number in (1, 3):
        masters[number].kill()
    eventually(lambda: states(c)[1] == states(c)[3] == "down", "the loss is seen")
    for number in range(20):
        key = f"minority:{number}"
        assert not c.locked(key)
        lock = c.lock(key, TTL / 2)
        assert lock.acquire()
        assert c.locked(key)
        assert c.acquire(key, TTL, blocking=False) is None
        assert lock.extend(TTL) > TTL / 2
        assert lock.release()
        assert not lock.release()
        assert not c.locked(key)
    nothing_left(masters)


def test_loss_is_reported_with_a_dead_minority(masters: Masters, client: MakeClient) -> None:
    """Catches: "still held" for a key that every master that answers has lost."""
    c = client(masters)
    all_connected(c)
    for number in (1, 3):
        masters[number].kill()
    eventually(lambda: states(c)[1] == states(c)[3] == "down", "the loss is seen")
    extended, released = c.lock("extended", TTL / 2), c.lock("released", TTL)
    assert extended.acquire()
    assert released.acquire()
    for number in (0, 2, 4):
        wipe(masters[number])
    with pytest.raises(LockLost):
        extended.extend(TTL)
    assert not extended.locked()
    assert not released.release()


# --- connections that break ----------------------------------------------------------------------


def test_release_is_sent_again_after_a_cut(
    masters: Masters, client: MakeClient, behind: Callable[..., list[Proxy]]
) -> None:
    """Catches: a release that is lost with its connection: the key would stay for its whole ttl."""
    proxies = behind(3, 4, record=True)
    c = client(urls(masters, proxies))
    all_connected(c)
    lock = c.lock("cut", TTL)
    assert lock.acquire()
    eventually(lambda: all(on(master, "cut") for master in masters), "all have the key")
    for proxy in proxies:
        proxy.refusing = True
        proxy.cut()
    assert lock.release()
    assert with_keys(masters) == [3, 4]
    for proxy in proxies:
        proxy.refusing = False
    nothing_left(masters, deadline=10)
    assert [len(proxy.sets()) for proxy in proxies] == [1, 1]
    eventually(lambda: [m.resent for m in c.health()] == [0, 0, 0, 1, 1], "both releases were sent again")


def went_through(proxy: Proxy, acquires: int) -> bool:
    return len(proxy.sets()) > acquires


def blocked_acquire(lock: Lock, proxies: list[Proxy]) -> Future[bool]:
    """An acquire whose replies from behind the proxies are lost; all requests have arrived."""
    for proxy in proxies:
        proxy.deaf = True
    future = start(lambda: lock.acquire(blocking=False))
    eventually(lambda: all(proxy.sets() for proxy in proxies), "the requests go through")
    return future


def test_acquire_is_not_sent_again_after_a_cut(
    masters: Masters, client: MakeClient, behind: Callable[..., list[Proxy]]
) -> None:
    """Catches: SET NX sent again blindly, and a caller that waits for a closed connection."""
    proxies = behind(2, 3, 4, record=True)
    c = client(urls(masters, proxies), node_timeout=60.0)
    all_connected(c)
    began = time.monotonic()
    future = blocked_acquire(c.lock("cut", TTL), proxies)
    for proxy in proxies:
        proxy.refusing = True
        proxy.cut()
    with pytest.raises(QuorumUnavailable, match=r"(?i)connect"):
        future.result(DEADLINE)
    assert time.monotonic() - began < 30.0, "it waited for node_timeout"
    for proxy in proxies:
        proxy.refusing = False
    all_connected(c)
    nothing_left(masters, deadline=10)
    assert [len(proxy.sets()) for proxy in proxies] == [1, 1, 1]
    cycle(c, "cut")


def test_cut_in_the_middle_of_many_cycles(
    valkey: Masters, client: MakeClient, behind: Callable[..., list[Proxy]]
) -> None:
    """Catches: a reply of the old connection counted on the new one, and a token sent twice."""
    proxies = behind(3, 4, record=True, delay=jitter(5, 0.003))
    c = client(urls(valkey, proxies))
    all_connected(c)
    stop = threading.Event()

    def work(name: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            cycle(c, f"{name}:{number}")

    workers = [start(partial(work, name)) for name in range(2)]
    try:
        for _ in range(amount(4, 10)):
            for proxy in proxies:
                before = len(proxy.sets())
                eventually(partial(went_through, proxy, before + 5), "work goes through it again")
                proxy.cut()
    finally:
        stop.set()
    for worker in workers:
        worker.result(DEADLINE)
    all_connected(c)
    nothing_left(valkey)
    for proxy in proxies:
        tokens = [words[2] for words in proxy.sets()]
        assert len(tokens) == len(set(tokens))


# --- masters that cannot be reached --------------------------------------------------------------


def closed_port() -> int:
    """A port without a server; below those of outgoing connections, which might connect to themselves."""
    while True:
        port = int.from_bytes(os.urandom(2)) % 10_000 + 15_000
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port


@contextlib.contextmanager
def unreachable(kind: str, master: Master) -> Iterator[str]:
    """The URL of a master that refuses, never replies, or is very slow."""
    if kind == "closed":
        yield f"redis://127.0.0.1:{closed_port()}"
    elif kind == "silent":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
    else:
        with Proxy(master.port, fixed(20.0)) as proxy:
            yield proxy.url


@pytest.mark.parametrize("kind", ["closed", "silent", "slow"])
def test_unreachable_minority_does_not_delay_the_first_acquire(
    valkey: Masters, client: MakeClient, kind: str
) -> None:
    """Catches: masters that are connected one after the other, or all waited for."""
    with unreachable(kind, valkey[3]) as three, unreachable(kind, valkey[4]) as four:
        c = client([three, four, *valkey.urls[:3]])

        def first() -> float:
            began = time.perf_counter()
            cycle(c, "first")
            return time.perf_counter() - began

        sooner(10.0, first, attempts=1)
        for number in range(100):
            cycle(c, f"next:{number}")
        assert states(c)[2:] == ["connected"] * 3
        assert "connected" not in states(c)[:2]
        c.close()


@pytest.mark.parametrize("kind", ["closed", "silent"])
def test_unreachable_majority_is_reported_in_time(valkey: Masters, client: MakeClient, kind: str) -> None:
    """Catches: an acquire that waits for connections longer than its caller allows."""
    with contextlib.ExitStack() as stack:
        broken = [stack.enter_context(unreachable(kind, valkey[0])) for _ in range(3)]

        def refused() -> float:
            c = client([*broken, *valkey.urls[:2]])
            began = time.perf_counter()
            with pytest.raises(QuorumUnavailable) as caught:
                c.acquire("never", TTL, timeout=0.3)
            taken = time.perf_counter() - began
            assert {cause.master for cause in caught.value.causes} >= {m.name for m in c.health()[:3]}
            c.close()
            return taken

        sooner(0.4, refused)
    nothing_left(valkey)


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Warnings about masters are what these tests cause."""
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())
