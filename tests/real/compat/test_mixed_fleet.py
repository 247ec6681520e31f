"""redlock-py, unmodified, and this library on the same keys: while a fleet moves from one to the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.counting import begin, counting, end
from support.engines import each_once
from support.keys import TTL, nothing_left
from support.waiting import DEADLINE, PROCESS_DEADLINE, eventually, start

from redlock_fast import FastRedlock
from redlock_fast.embedded import Masters

redlock = pytest.importorskip("redlock", reason="needs redlock-py, of the extra 'test'")

MakeClient = Callable[..., FastRedlock]

#: Of each process.
CYCLES = 40


@pytest.fixture
def peer(masters: Masters) -> Iterator[Any]:
    """redlock-py, with one attempt for each call."""
    locks = redlock.Redlock(masters.urls, retry_count=1, retry_delay=0.001)
    yield locks
    for server in locks.servers:
        server.close()


def test_each_keeps_the_other_out(masters: Masters, peer: Any, connected: MakeClient) -> None:
    ours = connected(masters, decide="all")
    theirs = peer.lock("r", int(TTL * 1000))
    assert theirs
    assert not ours.lock("r", TTL).acquire(blocking=False)
    peer.unlock(theirs)
    lock = ours.acquire("r", TTL)
    assert lock
    assert not peer.lock("r", int(TTL * 1000))
    assert lock.locked()
    assert lock.release()
    again = peer.lock("r", int(TTL * 1000))
    assert again
    peer.unlock(again)
    nothing_left(masters)


@pytest.mark.usefixtures("all_masters")
def test_its_release_is_pushed(
    masters: Masters,
    peer: Any,
    connected: MakeClient,
    raw: Callable[[Masters], list[redis.Redis]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that waits here for a lock of redlock-py does not poll before the test has failed."""
    monkeypatch.setattr("redlock_fast.algorithm.attempts.REARM", 10 * DEADLINE)
    ours, nodes = connected(masters), raw(masters)
    theirs = peer.lock("r", int(TTL * 1000))
    assert theirs
    waiting = start(lambda: ours.acquire("r", TTL))
    eventually(lambda: all(node.info("stats")["tracking_total_keys"] for node in nodes), "it waits")
    assert not waiting.done()
    peer.unlock(theirs)
    lock = waiting.result(DEADLINE)
    assert lock
    assert not peer.lock("r", int(TTL * 1000))
    assert lock.release()


@each_once
def test_a_counter_of_both_is_exact(masters: Masters, engine_name: str, tmp_path: Path) -> None:
    """Two processes of each kind. Catches: a key, or a token, that the other does not understand."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    setting = {
        "urls": masters.urls, "engine": engine_name, "path": str(counter), "cycles": CYCLES, "threads": 1,
        "timeout": 60.0,
    }  # fmt: skip
    workers = [counting(kind, setting) for kind in ("worker_counter", "worker_redlock_py") * 2]
    try:
        begin(workers)
        results = [json.loads(worker.communicate(timeout=PROCESS_DEADLINE)[0]) for worker in workers]
    finally:
        end(workers)
    assert [result["errors"] for result in results] == [[]] * 4
    assert [result["acquired"] for result in results] == [CYCLES] * 4
    assert int(counter.read_text()) == 4 * CYCLES
    nothing_left(masters)
