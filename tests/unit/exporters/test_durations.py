"""Labels of measurements: few, short and printable; what becomes of too many."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from support.inside import core_of

from redlock_fast import AsyncFastRedlock, ConfigError, FastRedlock, ShardedRedlock
from redlock_fast.exporters.durations import Durations, kind_of
from redlock_fast.locks.client_core import MAX_LABELS
from redlock_fast.prometheus import RedlockCollector

URLS = [f"redis://127.0.0.1:{number}" for number in range(1, 4)]


@pytest.fixture
def client() -> Iterator[FastRedlock]:
    with FastRedlock(URLS, label="till") as client:
        yield client


@pytest.mark.parametrize("label", ["x" * 65, "two\nlines", "\x1b[31m", b"bytes", 1, True])
def test_bad_labels(client: FastRedlock, label: Any) -> None:
    makers = [
        partial(client.lock, "r"),
        partial(client.rlock, "r"),
        partial(client.multilock, ["r"]),
        partial(client.semaphore, "r", 2),
        partial(client.rwlock, "r"),
        partial(client.synchronized, "r"),
        partial(FastRedlock, URLS),
        partial(AsyncFastRedlock, URLS),
        partial(ShardedRedlock, [URLS]),
    ]
    for make in makers:
        with pytest.raises(ConfigError, match="label must be a str of at most 64 printable characters"):
            make(label=label)


def test_label_of_a_lock(client: FastRedlock) -> None:
    assert client.lock("r").label == client.lock("r", label=None).label == "till"
    assert client.lock("r", label="checkout").label == "checkout"
    assert client.lock("r", label="").label == ""
    assert client.semaphore("r", 2, label="x" * 64).label == "x" * 64
    assert AsyncFastRedlock(URLS, label="tasks").lock("r").label == "tasks"


def test_labels_are_bounded(client: FastRedlock, caplog: pytest.LogCaptureFixture) -> None:
    labels = [client.lock("r", label=f"order-{number}").label for number in range(MAX_LABELS + 20)]
    kept = MAX_LABELS - 1  # and that of the client
    assert labels == [f"order-{number}" for number in range(kept)] + ["other"] * (MAX_LABELS + 20 - kept)
    assert client.lock("r", label="order-7").label == "order-7"
    (record,) = caplog.records
    assert record.event == "too-many-labels"  # type: ignore[attr-defined]
    assert f"order-{kept}" in record.message


def test_kinds_have_names(client: FastRedlock) -> None:
    held = client.lock("r", token=b"token")
    locks = [client.lock("r", fencing=True), client.lock("r", fair=True), held, client.rwlock("r").write()]
    assert [kind_of(lock) for lock in locks] == ["fenced", "fair", "plain", "write"]


def test_a_series_is_looked_up_once(client: FastRedlock) -> None:
    made: list[tuple[str, tuple[str, ...]]] = []
    seconds: list[float] = []

    def histogram(metric: str, labels: tuple[str, ...]) -> Any:
        made.append((metric, labels))
        return seconds.append

    durations, lock = Durations(histogram), client.lock("r")
    for number in range(3):
        durations.record("acquire", lock, number, "acquired", None)
        durations.record("release", lock, number, "released", None)
        durations.held(lock, number, "expired")
    assert made == [
        ("wait_time_seconds", ("plain", "till", "acquired")),
        ("hold_time_seconds", ("plain", "till", "expired")),
    ]
    assert seconds == [0, 0, 1, 1, 2, 2]


def test_a_client_without_durations_reports_nothing(client: FastRedlock) -> None:
    """What is not measured costs nothing. Catches: an observer that operations ask in vain."""
    RedlockCollector(None).add(client)
    assert core_of(client).client_state.observer is None
    RedlockCollector(None).add(client, durations=True)
    assert core_of(client).client_state.observer.reports is not None
