"""Masters in memory, as tests of users have them. What clients see of a fault is what real masters show."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients import both_clients
from support.makers import MakeClient
from support.memory import HANGS, MemoryFleet
from support.python_process import run_python
from support.waiting import DEADLINE, PATIENT, eventually, start

from redlock_fast import ConfigError, Contended, FastRedlock, LockLost, QuorumUnavailable
from redlock_fast.embedded import Masters
from redlock_fast.testing import MemoryMasters


@pytest.fixture(params=["memory", "servers"])
def fleet(request: pytest.FixtureRequest, valkey: MemoryFleet) -> Iterator[Any]:
    """Five masters of each kind, under the same names."""
    if request.param == "memory":
        yield valkey
    else:
        with Masters(5) as masters:
            yield masters


def exist(fleet: Any, key: str) -> list[str]:
    return [master.ask(f"EXISTS {key}") for master in fleet]


@both_clients
def test_a_minority_that_is_down_changes_nothing_and_a_majority_does(
    fleet: Any, connected: MakeClient
) -> None:
    client = connected(fleet, node_timeout=1.0)
    fleet[0].kill()
    fleet[1].pause()
    lock = client.lock("r", fencing=True)
    assert lock.acquire()
    assert lock.fencing_token > 0
    assert not client.lock("r").acquire(blocking=False)
    fleet[2].kill()
    with pytest.raises(QuorumUnavailable):
        client.lock("other").acquire(timeout=0.2)
    fleet[1].resume()
    eventually(
        lambda: client.health()[1].state == "connected" and not client.health()[1].pending, "it answers"
    )
    assert lock.release(), "three masters are left"
    eventually(
        lambda: exist([fleet[1], fleet[3], fleet[4]], "r") == [":0"] * 3, "the release arrives, late or not"
    )


@both_clients
def test_a_master_that_restarts_empty_gets_no_vote(fleet: Any, connected: MakeClient) -> None:
    """Catches: a restart that keeps the process' name, so that the guard sees none."""
    client = connected(fleet)
    lock = client.lock("r", 60)
    assert lock.acquire()
    fleet[0].restart()
    assert exist(fleet, "r").count(":0") >= 1
    eventually(lambda: client.health()[0].guard > 0, "the restart guard has seen it")
    assert lock.release()


@both_clients
def test_a_waiting_caller_gets_the_lock_by_a_push(fleet: Any, connected: MakeClient) -> None:
    """Catches: no push, so that the caller waits for the end of the lease."""
    client, other = (connected(fleet, wait="push", ttl=50.0) for _ in range(2))
    lock = client.lock("r")
    assert lock.acquire()
    waiting = start(lambda: other.lock("r").acquire(timeout=DEADLINE))
    eventually(lambda: sum(one.pending for one in other.health()) >= 3, "it watches")
    assert lock.release()
    assert waiting.result(DEADLINE) is True


@both_clients
def test_a_master_that_hung_executes_what_a_client_sent_before_it_closed(
    fleet: Any, connected: MakeClient
) -> None:
    """Catches: a test that sees no orphaned key where a real master would have one."""
    client = connected(fleet)
    fleet[4].pause()
    assert client.acquire("r", 60)
    client.close()
    fleet[4].resume()
    eventually(lambda: exist(fleet, "r") == [":1"] * 5, "all five have the key")


# --- what only masters in memory can do -------------------------------------------------------------------


def test_the_time_of_masters_and_clients_moves_on(memory: MemoryMasters, connected: MakeClient) -> None:
    client = connected(memory, clock=memory.clock)
    plain, fair = client.lock("r", 10), client.lock("f", 10, fair=True)
    reader, slot = client.rwlock("w", 10).read(), client.semaphore("s", 1, 10)
    locks = [plain, fair, reader, slot]
    assert all(lock.acquire() for lock in locks)
    memory.advance(9.0)
    assert plain.locked()
    assert plain.extend(20) > 15
    memory.advance(1.0)
    assert [lock.locked() for lock in locks] == [True, False, False, False]
    assert client.rwlock("w").write().acquire(blocking=False)
    assert client.semaphore("s", 1).acquire(blocking=False)
    assert not client.lock("r").acquire(blocking=False)
    memory.advance(20.0)
    with pytest.raises(LockLost):
        plain.check()
    assert client.lock("r").acquire(blocking=False)


def test_a_stopped_clock(engine_name: str) -> None:
    """Catches: a ttl that runs by another clock than the one that was given."""
    with MemoryMasters(3, clock=lambda: 5.0) as masters:
        options: dict[str, Any] = {"engine": engine_name, "clock": masters.clock, "decide": "all", **PATIENT}
        with FastRedlock(masters.urls, **options) as client:
            lock = client.acquire("r", ttl=0.5)
            assert lock is not None
            assert lock.remaining() == lock.validity
            masters.advance(0.25)
            assert [master.ask("PTTL r") for master in masters] == [":250"] * 3
            assert lock.remaining() == pytest.approx(lock.validity - 0.25)
            assert masters.clock() == 5.25


def test_the_end_of_a_lease_wakes_who_waits(memory: MemoryMasters, connected: MakeClient) -> None:
    client = connected(memory, wait="push", ttl=50.0)
    assert client.acquire("r")
    waiting = start(lambda: client.lock("r").acquire(timeout=DEADLINE))
    eventually(lambda: sum(one.pending for one in client.health()) >= 3, "it watches")
    memory.advance(50.0)
    assert waiting.result(DEADLINE) is True


def test_renewal_ends_when_too_many_are_down(memory: MemoryMasters, connected: MakeClient) -> None:
    client = connected(memory, ttl=60.0, clock=memory.clock, node_timeout=0.5)
    lock = client.lock("r", auto_extend=True)
    assert lock.acquire()
    for master in list(memory)[:3]:
        master.stop()
    memory.advance(60.0)
    assert lock.lost.wait(DEADLINE)


def test_stop_keeps_the_keys_and_the_process(memory: MemoryMasters, connected: MakeClient) -> None:
    client = connected(memory, decide="all")
    lock = client.acquire("r", 60)
    assert lock
    memory[0].stop()
    memory[0].stop()
    eventually(lambda: client.health()[0].state != "connected", "its connection is closed")
    assert memory[0].ask("EXISTS r") == ":1"
    memory[0].start()
    eventually(lambda: client.health()[0].state == "connected", "it is back")
    assert client.health()[0].guard == 0, "it has forgotten nothing"
    assert lock.release()
    assert [master.ask("EXISTS r") for master in memory] == [":0"] * 5


def test_a_slow_master_executes_late_and_in_order(memory: MemoryMasters, connected: MakeClient) -> None:
    client = connected(memory)
    memory[4].slow(HANGS)
    lock = client.acquire("r", 60)
    assert lock
    assert lock.release()
    assert memory[4].ask("EXISTS r") == ":0"
    assert client.acquire("other", 60)
    memory[4].slow(0.05)
    eventually(lambda: memory[4].ask("EXISTS other") == ":1", "it executes what arrived")
    assert memory[4].ask("EXISTS r") == ":0", "the release came behind the acquire"


def test_an_error_and_a_text_for_a_look(memory: MemoryMasters) -> None:
    assert memory[0].ask("SET 'a b' 1 PX 1000") == "+OK"
    assert memory[0].ask("NOSUCH") == "-ERR unknown command 'nosuch'"
    assert [len(memory), memory.urls, [*memory]] == [
        5,
        [one.url for one in memory],
        [memory[n] for n in range(5)],
    ]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda _: MemoryMasters(0), "n must be an integer from 1 to 63"),
        (lambda _: MemoryMasters(3, clock=1.0), "clock must be a function"),
        (lambda masters: masters.advance(-1), "seconds must be at least 0"),
        (lambda masters: masters[0].slow(float("nan")), "seconds must be a finite number"),
    ],
)
def test_wrong_arguments(memory: MemoryMasters, call: Callable[[Any], Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        call(memory)


def test_without_lupa_the_error_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lupa.lua51", None)
    before = threading.active_count()
    with pytest.raises(ConfigError, match=r"pip install 'redlock-fast\[testing\]'"):
        MemoryMasters(1)
    assert threading.active_count() == before


def gone(folder: Path) -> bool:
    return not folder.exists() and not any("memory" in thread.name for thread in threading.enumerate())


def test_the_end_leaves_nothing() -> None:
    """Catches: a thread or a folder that is left when masters are closed or dropped."""
    masters = MemoryMasters(3)
    folder = Path(masters.urls[0].removeprefix("unix://")).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    descriptors = len(os.listdir("/dev/fd"))
    masters.close()
    masters.close()
    assert gone(folder)
    assert len(os.listdir("/dev/fd")) < descriptors
    with pytest.raises(ConfigError, match="closed"):
        masters[0].stop()
    masters = MemoryMasters(1)
    folder = Path(masters.urls[0].removeprefix("unix://")).parent
    del masters
    gc.collect()
    eventually(lambda: gone(folder), "dropped masters end")


def test_a_child_of_fork_uses_the_masters_of_its_parent() -> None:
    """Catches: a child whose exit removes the sockets of its parent."""
    script = """
import os, sys
from redlock_fast import FastRedlock
from redlock_fast.testing import MemoryMasters
masters = MemoryMasters(3)
pid = os.fork()
with FastRedlock(masters.urls, node_timeout=5.0, connect_timeout=20.0) as client:
    if not pid:
        assert client.acquire("r", 60)
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert client.acquire("r", blocking=False) is None
    print([master.ask("PING") for master in masters], client.connect())
"""
    done = run_python([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("['+PONG', '+PONG', '+PONG'] True\n", "")


def test_contended_names_the_holder(memory: MemoryMasters, connected: MakeClient) -> None:
    """Catches: OWNER, whose reply is text, in another form than a server's."""
    assert connected(memory, owner="first").acquire("r")
    with pytest.raises(Contended, match="first"), connected(memory).lock("r", timeout=0.05):
        pytest.fail("the body ran unlocked")
