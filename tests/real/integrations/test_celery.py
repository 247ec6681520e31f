"""Tasks of Celery in one process; its workers are in test_task_queues.py."""

from __future__ import annotations

import functools
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.keys import nothing_left
from support.waiting import PROCESS_DEADLINE

from redlock_fast import ConfigError, Contended, FastRedlock
from redlock_fast.embedded import Masters

celery = pytest.importorskip("celery", reason="package celery is not installed: pip install celery")

from redlock_fast.integrations import celery as integration  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("all_masters"),
    pytest.mark.filterwarnings("default"),  # those of other packages are not ours to mend
]

Make = Callable[..., FastRedlock]


@pytest.fixture
def app() -> Any:
    return celery.Celery("tests", broker="memory://", set_as_current=False)


def test_a_task_with_self_and_without(client: Make, valkey: Masters, app: Any) -> None:
    c = client(valkey)

    @app.task
    @integration.single_run(c)
    def plain(number: int) -> list[bool]:
        return [c.locked(plain.name)]

    @app.task(bind=True)
    @integration.single_run(c, lambda number: f"account:{number}")
    def bound(self: Any, number: int) -> list[bool]:
        return [c.locked(name) for name in (self.name, f"account:{number}")]

    assert plain.apply([1]).get() == [True]
    assert plain(1) == [True]
    assert bound.apply([1]).get() == [False, True]
    assert bound(number=2) == [False, True]
    for task in (plain, bound):
        with pytest.raises(TypeError):
            task.delay(1, 2)
    nothing_left(valkey)
    with c.lock(plain.name, ttl=60.0):
        assert plain.apply([1]).get() is None


@pytest.mark.parametrize("delivery", ["first", "redelivered"])
def test_a_task_that_a_worker_skips_is_no_success(valkey: Masters, engine_name: str, delivery: str) -> None:
    """Its result says so, but not that of a second delivery of a task that still runs."""
    script = Path(__file__).parents[2] / "support" / "worker_celery_skip.py"
    done = subprocess.run(
        [sys.executable, str(script), engine_name, delivery, *valkey.urls],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=PROCESS_DEADLINE,
    )
    shown = {"alone": "done", "skipped": "PENDING", "chained": "PENDING"}
    if delivery == "first":
        shown |= {"skipped": "REVOKED", "error": "skipped: another run has its lock"}
    assert json.loads(done.stdout.splitlines()[-1]) == shown


def test_it_is_tried_again_while_another_run_has_the_lock(client: Make, valkey: Masters, app: Any) -> None:
    c, asked = client(valkey), []

    def name(number: int) -> str:
        asked.append(number)
        return "account"

    @app.task(bind=True, max_retries=2)
    @integration.single_run(c, name, if_taken="retry", countdown=5)
    def transfer(self: Any, number: int) -> str:
        if number == 1:
            raise Contended("of another lock")
        if number == 2 and not self.request.retries:
            raise self.retry()
        return "done"

    with c.lock("account", ttl=60.0):
        with pytest.raises(Contended, match="'account' is already held"):
            transfer.apply([0]).get()
        assert asked == [0] * 3
    with pytest.raises(Contended, match="of another lock"):
        transfer.apply([1]).get()
    assert asked == [0, 0, 0, 1]
    assert transfer.apply([2]).get() == "done"
    nothing_left(valkey)


def test_a_body_is_called_without_its_task(client: Make, valkey: Masters, app: Any) -> None:
    """As in unit tests of an application, and in other tasks: the lock never gets the name of those."""
    c = client(valkey)

    @app.task
    @integration.single_run(c)
    def plain() -> bool:
        return c.locked(plain.name)

    @app.task
    @integration.single_run(c, "account", if_taken="retry")
    def named() -> bool:
        return c.locked("account")

    @app.task
    def outer(task: Any) -> Any:
        return task.run()

    @integration.single_run(c)
    def inner() -> bool:
        return c.locked(below.name)

    @app.task
    @functools.wraps(inner)
    def below() -> Any:
        return inner()

    assert below.apply().get() is True
    assert named.run() is outer(named) is True
    for call in (plain.run, lambda: outer.apply([plain]).get()):
        with pytest.raises(ConfigError, match="call the task"):
            call()
    with c.lock("account", ttl=60.0), pytest.raises(Contended):
        named.run()
    nothing_left(valkey)


def test_wrong_input(client: Make, valkey: Masters, app: Any) -> None:
    c = client(valkey)
    with pytest.raises(ConfigError, match="countdown"):
        integration.single_run(c, countdown=5)
    with pytest.raises(ConfigError):
        integration.single_run(c, ttl=-1)
    with pytest.raises(ConfigError, match=r"@app.task above"):
        integration.single_run(c)(app.task(print))


def test_a_task_is_not_sent_while_it_is_queued_or_runs(valkey: Masters, engine_name: str) -> None:
    """Catches: a second message in the queue; a lock that is free before the run ends, or that stays after
    it, its failure or its last retry; a message that was never run, and hinders all later ones.
    """
    script = Path(__file__).parents[2] / "support" / "worker_celery_queued.py"
    done = subprocess.run(
        [sys.executable, str(script), engine_name, *valkey.urls],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=PROCESS_DEADLINE,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "queued": {
            "first": "PENDING",
            "not sent": "REVOKED",
            "error": "not sent: the task is queued or running already",
            "other": "PENDING",
        },
        "done": ["late", "late", "a", "b"],
        "running": "REVOKED",
        "failed": 2,
        "retried": "third",
        "sent in a retry": ["REVOKED"],
        "once more": "a",
        "runs": ["a", "b", "long", "fails", "fails", "again 0", "again 1", "again 2", "a"],
    }
    nothing_left(valkey)


def test_a_task_whose_broker_fails_is_not_queued(client: Make, valkey: Masters, app: Any) -> None:
    """Catches: a lock of a message that was never sent."""
    c = client(valkey)

    @app.task(base=integration.queued_once(c, expiry=50))
    def task() -> None:
        pass

    class Broken(Exception):
        pass

    class Producer:
        def __getattr__(self, name: str) -> Any:
            raise Broken

    with pytest.raises(Broken):
        task.apply_async(producer=Producer())
    nothing_left(valkey)


def test_a_task_that_is_called_at_once_is_not_queued(
    client: Make, valkey: Masters, app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Direct calls do not look at the lock; ``task_always_eager`` sends, runs, and leaves nothing."""
    c = client(valkey)

    @app.task(bind=True, base=integration.queued_once(c, expiry=50))
    def task(self: Any) -> bool:
        return bool(self.request.id)

    with c.lock(f"queued:{task.name}", 50):
        assert task() is False
        assert task.apply().get() is True
        with caplog.at_level(logging.INFO, "redlock_fast"):
            assert task.delay().state == "REVOKED"
        assert [record.event for record in caplog.records] == ["run-skipped"]  # type: ignore[attr-defined]
    app.conf.task_always_eager = True
    assert task.delay().get() is True
    nothing_left(valkey)
    for expiry in (0, 10_000):
        with pytest.raises(ConfigError):
            integration.queued_once(c, expiry=expiry)
