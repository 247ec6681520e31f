"""A signal before the command runs ends ``exec`` and ``lead`` with 128 and its number, at each moment."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from types import SimpleNamespace
from typing import Any, Self

import pytest
from support.moments import moments
from support.waiting import DEADLINE, eventually

from redlock_fast.cli import execute, lead, signals
from redlock_fast.cli.arguments import parse
from redlock_fast.cli.signals import CAUGHT, ENDING, Signals, Stopped

#: Their moments count.
FILES = (signals.__file__, execute.__file__, lead.__file__, signal.__file__)
FIRST, SECOND = signal.SIGTERM, signal.SIGHUP
STOPPED = 128 + FIRST


class Ended(BaseException):
    """The process would have been ended by the default action of a signal."""


def end(number: int, frame: object) -> None:
    raise Ended(number)


def by_default() -> None:
    """Set handlers in place of the default actions."""
    for number in CAUGHT:
        signal.signal(number, end)


@pytest.fixture(autouse=True)
def original_handlers() -> Iterator[None]:
    originals = {number: signal.getsignal(number) for number in (*CAUGHT, signal.SIGTSTP, signal.SIGALRM)}
    hook = sys.unraisablehook
    by_default()
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    sys.unraisablehook = hook
    for number, handler in originals.items():
        signal.signal(number, handler)


class Part:
    """A context manager of a run, which visits its entry and its exit."""

    def __init__(self, visit: Callable[[str], None], name: str) -> None:
        self.visit = visit
        self.name = name

    def __enter__(self) -> Self:
        self.visit(f"{self.name} begins")
        return self

    def __exit__(self, *_: object) -> None:
        self.visit(f"{self.name} ends")


class FakeChild(Part):
    def start(self, environment: dict[str, str]) -> None:
        self.visit("the command starts")

    def send(self, number: int) -> None:
        self.visit("a signal is forwarded")

    def wait(self) -> int:
        return 7


class FakeLock:
    def __init__(self, visit: Callable[[str], None], granted: bool) -> None:
        self.visit = visit
        self.granted = granted

    def acquire(self) -> bool:
        self.visit("the wait")
        return self.granted

    def release(self) -> bool:
        self.visit("the release")
        return True


class FakeLeader(Part):
    fencing_token = 1

    def wait(self) -> None:
        self.visit("the wait")


class Run:
    """``exec`` or ``lead`` without processes and masters. ``at``: what is done at a place of the run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, command: str, *, granted: bool = True) -> None:
        self.options = parse([command, "job", "--", "true"])
        self.at: dict[str, Callable[[], None]] = {}
        self.passed: list[str] = []
        self.module: Any = execute if command == "exec" else lead
        client = Part(self.visit, "the client")
        client.lock = lambda *_, **options: FakeLock(self.visit, granted)  # type: ignore[attr-defined]
        client.leader = lambda *_, **options: FakeLeader(self.visit, "the leader")  # type: ignore[attr-defined]
        monkeypatch.setattr(
            self.module, "ChildProcess", lambda *_, **options: FakeChild(self.visit, "the child")
        )
        monkeypatch.setattr(self.module, "FastRedlock", lambda **options: client)
        monkeypatch.setattr(
            self.module, "load", lambda options: SimpleNamespace(client=lambda **known: known)
        )
        monkeypatch.setattr(self.module, "log", lambda verbose: None)
        if command == "exec":
            monkeypatch.setattr(execute, "enter_unless_held", lambda lock: not lock.acquire())

    def visit(self, place: str) -> None:
        self.at.get(place, lambda: None)()
        self.passed.append(place)

    def __call__(self) -> int | None:
        """The exit code; None where the default action of a signal ends the process."""
        self.passed.clear()
        try:
            code: int = self.module.run(self.options)
        except Ended:
            return None
        return code


def send(number: int) -> Callable[[], None]:
    return lambda: signal.raise_signal(number)


# --- the second signal --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("exec", "the release"),
        ("exec", "the client ends"),
        ("exec", "the child ends"),
        ("lead", "the leader ends"),
        ("lead", "the client ends"),
        ("lead", "the child ends"),
    ],
)
def test_a_second_signal_changes_nothing(monkeypatch: pytest.MonkeyPatch, command: str, place: str) -> None:
    """Catches: a release that the second signal interrupts, and its number in the exit code."""
    run = Run(monkeypatch, command)
    run.at = {"the wait": send(FIRST), place: send(SECOND)}
    assert run() == STOPPED
    assert run.passed[-1] == "the child ends"
    assert place in run.passed


@pytest.mark.parametrize("command", ["exec", "lead"])
def test_a_second_signal_while_the_handlers_are_put_back(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """At each moment. Catches: an exit code of 1, which means that another client holds the lock."""
    run = Run(monkeypatch, command)
    run.at = {"the wait": send(FIRST)}
    codes: list[int | None] = []

    moments(lambda: codes.append(run()), send(SECOND), by_default, FILES.__contains__)
    assert len(codes) > 30
    # At first its default action ends the process, and then it comes before the other signal.
    first = codes.index(STOPPED)
    assert set(codes[:first]) == {None, 128 + SECOND}
    assert set(codes[first:]) == {STOPPED}


# --- the first ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "granted"), [("exec", True), ("exec", False), ("lead", True)])
def test_a_signal_at_each_moment(monkeypatch: pytest.MonkeyPatch, command: str, granted: bool) -> None:
    """Catches: one at the entry or the exit of Signals, which was a traceback and the exit code 1.

    A default action ends the process before the handlers are set, and after they are put back.
    """
    run = Run(monkeypatch, command, granted=granted)
    codes: list[int | None] = []
    moments(lambda: codes.append(run()), send(FIRST), by_default, FILES.__contains__)
    assert len(codes) > 30
    forwarded = [7] if granted else []
    undisturbed = 7 if granted else 1
    assert [code for code, _ in groupby(codes)] == [None, STOPPED, *forwarded, None, undisturbed]


# --- Signals ------------------------------------------------------------------------------------------


def test_only_the_first_signal_raises() -> None:
    def body() -> None:
        try:
            signal.raise_signal(FIRST)
        finally:
            for number in CAUGHT:
                signal.raise_signal(number)

    with pytest.raises(Stopped) as caught, Signals(unstoppable=False):
        body()
    assert caught.value.number == FIRST
    assert {signal.getsignal(number) for number in CAUGHT} == {signal.SIG_IGN}


def test_a_later_signal_raises_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A destructor drops the exception of the first. Catches: a wait that no signal ends."""
    now = 100.0
    monkeypatch.setattr(signals.time, "monotonic", lambda: now)
    with Signals(unstoppable=False):
        with pytest.raises(Stopped):
            signal.raise_signal(FIRST)
        now += ENDING / 2
        signal.raise_signal(SECOND)
        now += ENDING
        with pytest.raises(Stopped) as caught:
            signal.raise_signal(SECOND)
    assert caught.value.number == FIRST


class Dropping:
    """What a signal handler raises in its destructor is dropped."""

    def __del__(self) -> None:
        signal.raise_signal(FIRST)


def test_a_dropped_exception_is_raised_again() -> None:
    """Without another signal. Catches: a wait that goes on after SIGTERM arrived in an import."""

    def body() -> None:
        Dropping()
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            time.sleep(0.01)

    with pytest.raises(Stopped) as caught, Signals(unstoppable=False):
        body()
    assert caught.value.number == FIRST


def test_a_dropped_exception_is_forwarded_to_the_command() -> None:
    """If the command runs by then."""
    forwarded: list[int] = []
    with Signals(unstoppable=False) as caught:
        Dropping()
        caught.deliver = forwarded.append
        eventually(lambda: forwarded == [FIRST], "the signal is delivered")


def test_no_timer_is_left() -> None:
    with Signals(unstoppable=False):
        Dropping()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_other_dropped_exceptions_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_type))
    hook = sys.unraisablehook
    with Signals(unstoppable=False):
        sys.unraisablehook(SimpleNamespace(exc_type=ValueError))  # type: ignore[arg-type]
    assert reported == [ValueError]
    assert sys.unraisablehook is hook


def test_handlers_are_put_back_without_a_signal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Signals(unstoppable=True):
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTSTP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not end
    assert signal.getsignal(signal.SIGTERM) is end
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN
