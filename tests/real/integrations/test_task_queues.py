"""Jobs of task queues run once: two workers of each, as users start them, and a master that dies."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from support.engines import engines
from support.keys import with_key
from support.thorough import MORE
from support.waiting import DEADLINE, eventually

from redlock_fast.embedded import Masters

TESTS = Path(__file__).parents[2]
SCRIPTS = Path(sysconfig.get_path("scripts"))
APP = "support.queues"
#: Packages start slowly on a busy machine.
PATIENCE = 3 * DEADLINE

pytestmark = pytest.mark.filterwarnings("ignore")  # those of other packages are not ours to mend

WORKERS = {
    "arq": f"arq {APP}.arq_app.WorkerSettings",
    "celery": f"celery -A {APP}.celery_app worker -c 1 -n {{worker}} --without-gossip --without-mingle",
    "dramatiq": f"dramatiq {APP}.dramatiq_app -p 1 -t 1",
    "huey": f"huey_consumer {APP}.huey_app.huey -k process -w 1",
    "rq": "rq worker --url {broker} --with-scheduler default",
    "taskiq": f"taskiq worker {APP}.taskiq_app:broker -w 1 --max-async-tasks 1",
}


class Queue:
    """The workers of one framework, and the events that their jobs report."""

    def __init__(self, masters: Masters, folder: Path, stack: ExitStack) -> None:
        # The first master lives on in these tests, and its last database has no locks.
        self.broker = f"{masters[0].url}/15"
        self.folder = folder
        self.environment = {
            **os.environ,
            "QUEUE_TEST": json.dumps({"broker": self.broker, "urls": masters.urls}),
            "dramatiq_queue_prefetch": "1",
            "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]),
        }
        self._stack = stack
        self._redis = stack.enter_context(redis.Redis.from_url(self.broker, decode_responses=True))

    def start(self, command: str, worker: str) -> subprocess.Popen[bytes]:
        """Start a process; its workers and their children are called ``worker``."""
        program, *arguments = command.format(broker=self.broker, worker=worker).split()
        path = sys.executable if program == "python" else str(SCRIPTS / program)
        # Each worker on another engine.
        engine = engines()[int(worker) % len(engines())]
        log = self._stack.enter_context((self.folder / f"{worker}.log").open("wb"))
        process = subprocess.Popen(
            [path, *arguments],
            cwd=self.folder,
            env={**self.environment, "WORKER": worker, "REDLOCK_FAST_ENGINE": engine},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        self._stack.callback(end, process)
        return process

    def events(self) -> list[tuple[str, str]]:
        """All so far: the worker, and the text of the event."""
        lines: Any = self._redis.lrange("events", 0, -1)
        return [(worker, logged) for worker, _, logged in (line.partition(" ") for line in lines)]

    def logged(self, *words: str) -> list[str]:
        """The workers of the events with this text, in their order."""
        return [worker for worker, logged in self.events() if logged in words]

    def senders(self) -> list[str]:
        """The processes that sent the tasks that are in Celery's queue, in their order."""
        messages: Any = self._redis.lrange("celery", 0, -1)
        origins = [json.loads(message)["headers"]["origin"] for message in reversed(messages)]
        return [re.sub(r"gen(\d+)@.*", r"\1", origin) for origin in origins]

    def go(self) -> None:
        """The job that runs may end."""
        self._redis.rpush("go", "now")

    def until(self, condition: Any, what: str) -> None:
        try:
            eventually(condition, what, deadline=PATIENCE)
        except AssertionError as error:
            logs = [f"{log.name}:\n{log.read_text()[-3000:]}" for log in sorted(self.folder.glob("*.log"))]
            raise AssertionError("\n".join([str(error), str(self.events()), *logs])) from None


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process, and all that it started; some of it has a process group of its own."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait()


@pytest.fixture
def queue(valkey: Masters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    with ExitStack() as stack:
        made = Queue(valkey, tmp_path, stack)
        monkeypatch.setenv("QUEUE_TEST", made.environment["QUEUE_TEST"])
        yield made


@contextmanager
def application(name: str) -> Iterator[Any]:
    """The app, imported as a program imports it that enqueues jobs."""
    before = set(sys.modules)
    try:
        yield importlib.import_module(f"{APP}.{name}_app")
    finally:
        for imported in {f"{APP}.jobs", f"{APP}.{name}_app"} - before:
            sys.modules.pop(imported, None)


#: In plain pytest those with a module of their own, and one of those that take the decorator of the client.
CHOSEN = [*WORKERS] if MORE else ["arq", "celery", "dramatiq"]


@pytest.mark.parametrize("name", CHOSEN)
def test_a_job_runs_once(queue: Queue, valkey: Masters, name: str) -> None:
    pytest.importorskip(name, reason=f"package {name} is not installed: pip install {name}")
    with application(name) as app:
        for number in range(4):
            app.enqueue("nightly", number)
        for worker in "12":
            queue.start(WORKERS[name], worker)
        queue.until(lambda: len(set(queue.logged(*asked("nightly", 4)))) == 2, "both workers have a copy")
        queue.until(lambda: queue.logged("nightly began"), "a copy runs")
        valkey[-1].kill()
        app.enqueue("nightly", 4)
        queue.go()
        queue.until(lambda: len(queue.logged(*asked("nightly", 5))) == 5, "each copy was taken by a worker")
        queue.until(lambda: queue.logged("nightly ended"), "the one that ran ends")
        assert queue.logged("nightly began") == queue.logged("nightly ended")
        app.enqueue("nightly", 5)

        for number in range(2):
            app.enqueue("account", number)
        queue.until(lambda: len(set(queue.logged(*asked("account", 2)))) == 2, "the other worker is refused")
        for _ in range(2):
            queue.go()
        queue.until(lambda: len(queue.logged("account ended")) == 2, "each runs in the end")
        runs = [logged for _, logged in queue.events() if logged in ("account began", "account ended")]
        assert runs == ["account began", "account ended"] * 2
        queue.until(lambda: len(queue.logged(*asked("nightly", 6))) == 6, "the last copy was taken, too")
    assert len(queue.logged("nightly began")) == 1


def asked(job: str, count: int) -> list[str]:
    return [f"{job}? {number}" for number in range(count)]


def test_apscheduler(queue: Queue, valkey: Masters) -> None:
    """Each process fires the job, and one runs it in a period. Its function can be pickled by its name."""
    pytest.importorskip("apscheduler", reason="package apscheduler is not installed: pip install apscheduler")
    for worker in "12":
        queue.start(f"python -m {APP}.apscheduler_app", worker)
    queue.until(lambda: len(set(queue.logged("nightly? 0"))) == 2, "both schedulers fire the job")
    queue.until(lambda: queue.logged("nightly began"), "one runs it")
    valkey[-1].kill()
    queue.go()
    queue.until(lambda: queue.logged("nightly ended"), "the run ends")
    fired = len(queue.logged("nightly? 0"))
    queue.until(lambda: len(set(queue.logged("nightly? 0")[fired:])) == 2, "both fire it again")
    assert len(queue.logged("nightly began")) == 1


def test_django_commands(queue: Queue, valkey: Masters) -> None:
    """Cron starts the command on each machine. A copy that is skipped ends at once, and is no failure."""
    pytest.importorskip("django", reason="package django is not installed: pip install django")

    def start(number: int) -> subprocess.Popen[bytes]:
        return queue.start(f"python -m {APP}.django_command {number}", str(number))

    copies = [start(number) for number in range(2)]
    queue.until(lambda: len(queue.logged(*asked("nightly", 2))) == 2, "both ask for the lock")
    queue.until(lambda: queue.logged("nightly began"), "one runs")
    valkey[-1].kill()
    copies.append(start(2))
    queue.until(lambda: [one.poll() for one in copies].count(0) == 2, "the others are skipped")
    queue.go()
    queue.until(lambda: queue.logged("nightly ended"), "the run ends")
    copies.append(start(3))
    assert [one.wait(PATIENCE) for one in copies] == [0] * 4
    assert len(queue.logged("nightly began")) == 1


def test_celery_beat(queue: Queue, valkey: Masters) -> None:
    """Of two beats one sends; when it is killed the other does."""
    pytest.importorskip("celery", reason="package celery is not installed: pip install celery")
    beats = [
        queue.start(f"celery -A {APP}.celery_app beat -s {queue.folder}/{worker}.schedule", worker)
        for worker in "12"
    ]
    queue.until(lambda: len(queue.senders()) >= 2, "a beat sends")
    valkey[-1].kill()
    sent = len(queue.senders())
    queue.until(lambda: len(queue.senders()) >= sent + 2, "it sends with the masters that are left")
    (active,) = {*queue.senders()}
    (standby,) = {str(beat.pid) for beat in beats} - {active}
    os.kill(int(active), signal.SIGKILL)
    queue.until(lambda: queue.senders()[-2:] == [standby] * 2, "the other beat sends")
    senders = queue.senders()
    change = senders.index(standby)
    assert senders == [active] * change + [standby] * (len(senders) - change)
    (last,) = (beat for beat in beats if str(beat.pid) == standby)
    # Three of the four masters that live elect a leader; the fourth may get its key with an extension.
    queue.until(lambda: len(with_key(valkey, "celery-beat")) >= 3, "the other beat has the lock")
    last.terminate()
    assert last.wait(PATIENCE) == 0
    # A release returns when a quorum has replied.
    assert len(with_key(valkey, "celery-beat")) <= 1


@pytest.mark.parametrize("worker", ["1", "2"])  # native, pure
def test_a_detached_celery_beat(queue: Queue, valkey: Masters, worker: str) -> None:
    """It closes all descriptors and opens its log. Catches: bytes of ours in the log."""
    pytest.importorskip("celery", reason="package celery is not installed: pip install celery")
    log, pid = queue.folder / "beat.log", queue.folder / "beat.pid"
    queue.start(
        f"celery -A {APP}.celery_app beat --detach --loglevel=info -s {queue.folder}/detached.schedule "
        f"--logfile={log} --pidfile={pid}",
        worker,
    )
    try:
        queue.until(lambda: len(queue.senders()) >= 3, "the beat sends")
        assert {*queue.senders()} == {pid.read_text().strip()}
    finally:
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGTERM)
    queue.until(lambda: not pid.exists(), "the beat ends")
    written = log.read_text()
    assert "beat: Starting..." in written
    assert all(letter.isprintable() or letter == "\n" for letter in written)
