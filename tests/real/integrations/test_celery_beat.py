"""What beats send around an election, in one process; beats as processes are in test_task_queues.py."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from support.waiting import DEADLINE, eventually

from redlock_fast import FastRedlock
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


def keys_of(masters: Masters) -> list[list[bytes]]:
    """The keys of beats, but the counters of fencing tokens."""
    found = []
    for master in masters:
        with redis.Redis.from_url(master.url) as node:
            found.append([key for key in node.keys("*celery-beat*") if not key.endswith(b":f")])
    return found


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


def test_a_run_that_the_second_of_three_leaders_sent_is_not_sent_again(
    make: Callable[..., Beat], valkey: Masters
) -> None:
    """The mark of the second is its own: that of the first, of an earlier run, ends before."""
    first, second, third = make(), make(), make()
    eventually(first.leads, "a beat is elected")
    assert not second.leads()
    first.tick_when_due()
    first.close()
    eventually(second.leads, "the next is elected")
    assert not third.leads()
    third.tick_when_due()
    second.tick_when_due()
    assert (first.sent, second.sent) == (["nightly"], ["nightly"])
    first._marks["nightly"].release()  # as if its lease had ended
    second.close()
    eventually(third.leads, "the third is elected")
    third.tick()
    assert third.sent == []
    assert sum(any(b"nightly" in key for key in keys) for keys in keys_of(valkey)) >= 3, "it is marked"


def test_a_beat_that_loses_the_leadership_before_it_sends(
    make: Callable[..., Beat], monkeypatch: pytest.MonkeyPatch, valkey: Masters
) -> None:
    one = make()
    eventually(one.leads, "it is elected")
    mark = one._mark

    def loses(name: str, again: bool) -> bool:
        assert one._leader is not None
        one._leader.stop()
        return mark(name, again)

    monkeypatch.setattr(one, "_mark", loses)
    one.tick_when_due()
    assert one.sent == []
    assert not any(keys_of(valkey))
