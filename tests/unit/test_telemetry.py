"""The log: the fields of its records, and what is left out."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from redlock_fast import telemetry
from redlock_fast.telemetry import LOG_INTERVAL, MAX_LINES, EventLog, fields


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(telemetry, "time", clock)
    return clock


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Iterator[list[dict[str, Any]]]:
    with caplog.at_level(logging.INFO, "redlock_fast"):
        yield Records(caplog)  # type: ignore[misc]


class Records:
    """The records so far, as dictionaries."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter([vars(record) for record in self._caplog.records])


def test_each_lock_has_a_line_of_its_own(clock: Clock, records: list[dict[str, Any]]) -> None:
    """Catches: eight locks that are lost at once are one line, and seven are never named."""
    log = EventLog()
    for number in range(8):
        log.warn_of("lock-lost", "gone", resource=f"orders:{number}", owner="web", reason="gone: no key")
    assert [one["resource"] for one in records] == [f"orders:{number}" for number in range(8)]
    assert {(one["owner"], one["reason"], one["master"]) for one in records} == {("web", "gone: no key", "")}


def test_the_same_lock_again_is_counted(clock: Clock, records: list[dict[str, Any]]) -> None:
    log = EventLog()
    for _ in range(3):
        log.warn_of("lock-lost", "gone", resource="r")
    log.report_left_out()
    assert len(list(records)) == 1, "its interval has not ended"
    clock.now += LOG_INTERVAL
    log.report_left_out()
    log.report_left_out()
    assert [one["left_out"] for one in records] == [0, 2], "without another event, and once"


def test_the_next_line_has_the_count(clock: Clock, records: list[dict[str, Any]]) -> None:
    log = EventLog()
    log.warn("master-lost", "a", "closed")
    log.warn("master-lost", "a", "closed")
    clock.now += LOG_INTERVAL
    log.warn("master-lost", "a", "closed")
    last = list(records)[-1]
    assert (last["left_out"], last["master"], last["reason"]) == (1, "a", "closed")
    assert last["message"] == "master-lost: master a: closed (1 more like it before)"


def test_many_locks_are_bounded_and_counted(clock: Clock, records: list[dict[str, Any]]) -> None:
    """A fleet of locks that ends at once: neither the log nor the memory grows with it."""
    log = EventLog()
    for number in range(10 * MAX_LINES):
        log.warn_of("lock-lost", "gone", resource=str(number))
    assert len(list(records)) == MAX_LINES
    assert len(log._next) <= MAX_LINES
    log.report_left_out(at_end=True)
    assert list(records)[-1]["left_out"] == 9 * MAX_LINES
    clock.now += LOG_INTERVAL
    log.warn_of("lock-lost", "gone", resource="x")
    assert list(log._next) == [("lock-lost", "x")], "what is over is forgotten"


def test_a_formatter_may_name_each_field(caplog: pytest.LogCaptureFixture) -> None:
    formatter = logging.Formatter(" ".join(f"%({name})s" for name in fields("event")))
    log = EventLog()
    with caplog.at_level(logging.INFO, "redlock_fast"):
        log.info("master-left", "a", "left")
        log.warn("master-lost", "a", "closed")
        log.warn_of("too-many-labels", "100")
        telemetry.log_outcome("run-skipped", "r", resource="r", reason="held", level=logging.INFO)
        try:
            raise ValueError
        except ValueError:
            telemetry.log_error("on-lost-error")
    assert [formatter.format(record).split()[0] for record in caplog.records] == [
        "master-left", "master-lost", "too-many-labels", "run-skipped", "on-lost-error",
    ]  # fmt: skip


def test_a_program_without_logging_sees_no_lines() -> None:
    code = "from redlock_fast.telemetry import EventLog; EventLog().warn('master-lost', 'a', 'closed')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
