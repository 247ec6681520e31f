"""What beats send around an election, in one process; beats as processes are in test_task_queues.py."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import DEADLINE, eventually

from redlock_fast import FastRedlock, Lock
from redlock_fast.embedded import Masters
from redlock_fast.integrations import celery_beat

celery = pytest.importorskip("celery", reason="package celery is not installed: pip install celery")

from celery import beat  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("all_masters"),
    pytest.mark.filterwarnings("default"),  # those of other packages are not ours to mend
]


class Beat(celery_beat.OneActive, beat.Scheduler):
    """A scheduler with one entry, which remembers what it sent."""

    lease = DEADLINE / 2

    def __init__(self, client: FastRedlock) -> None:
        self.client = client
        self.sent: list[str] = []
        app = celery.Celery("tests", broker="memory://", set_as_current=False)
        app.conf.beat_schedule = {"nightly": {"task": "nightly", "schedule": 3600.0}}
        super().__init__(app)

    def apply_async(self, entry: Any, **_: Any) -> None:
        self.sent.append(entry.name)

    def leads(self) -> bool:
        """After a tick."""
        self.tick()
        return self._leader is not None and self._leader.is_leader

    def tick_when_due(self) -> None:
        self.schedule["nightly"].last_run_at -= datetime.timedelta(hours=2)
        self._heap = None
        self.tick()


@pytest.fixture
def make(client: Callable[..., FastRedlock], valkey: Masters) -> Iterator[Callable[..., Beat]]:
    beats: list[Beat] = []

    def made(**options: Any) -> Beat:
        beats.append(Beat(client(valkey, max_ttl=4 * Beat.lease, **options)))
        return beats[-1]

    yield made
    for one in beats:
        one.close()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """``later(seconds)``: so much time passes for beats, and not for leases."""
    now = [0.0]

    def passes(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(celery_beat, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return passes


@pytest.mark.parametrize(
    ("sent_before", "passed", "sends"), [(True, 0, []), (False, 0, ["nightly"]), (False, 3, [])]
)
def test_after_its_election_a_beat_sends_what_was_not_sent(
    make: Callable[..., Beat],
    later: Callable[[float], None],
    sent_before: bool,
    passed: int,
    sends: list[str],
) -> None:
    one, other = make(), make()
    eventually(one.leads, "a beat is elected")
    assert not other.leads()
    other.tick_when_due()
    if sent_before:
        one.tick_when_due()
        assert one.sent == ["nightly"]
    later(passed * Beat.lease)
    assert not other.leads()
    assert other.sent == []
    one.close()
    eventually(other.leads, "the other is elected")
    other.tick()
    assert other.sent == sends
    other.tick_when_due()
    assert other.sent == [*sends, "nightly"]


def test_what_comes_due_while_the_masters_are_away_is_sent(
    make: Callable[..., Beat], later: Callable[[float], None], valkey: Masters
) -> None:
    one = make(node_timeout=0.05, connect_timeout=0.05)
    one.client.connect(DEADLINE)
    for master in valkey:
        master.pause()
    one.tick_when_due()
    for _ in range(3):
        later(1.5 * Beat.lease)
        assert not one.leads()
    for master in valkey:
        master.resume()
    eventually(one.leads, "it is elected")
    one.tick()
    assert one.sent == ["nightly"]


def test_a_beat_that_loses_the_leadership_before_it_sends(
    make: Callable[..., Beat], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make()
    eventually(one.leads, "it is elected")
    mark = one._mark

    def loses(name: str) -> Lock:
        assert one._leader is not None
        one._leader.stop()
        return mark(name)

    monkeypatch.setattr(one, "_mark", loses)
    one.tick_when_due()
    assert one.sent == []
    assert not one.client.locked("celery-beat:nightly")
