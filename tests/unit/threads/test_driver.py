"""Both drivers perform the effects of a procedure and throw exceptions into it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from redlock_fast.aio import driver as aio_driver
from redlock_fast.algorithm.effects import Effect, Exchange, Sleep, WaitForQuorum
from redlock_fast.engine.contract import Votes
from redlock_fast.errors import ClientClosed
from redlock_fast.threads import driver as threads_driver
from redlock_fast.threads import operations

VOTES = [Votes((1,), 1, 1, 0, 0, {})]
Procedure = Generator[Effect, Any, Any]
Drive = Callable[..., Any]


class Interrupted(Exception):
    """What the effect ``Sleep`` raises here."""


def masters(performed: list[object]) -> Any:
    """Masters that record the effects. A pause raises."""

    def exchange(requests: Any, need: int, *_: object) -> list[Votes]:
        performed.append(("exchange", need))
        return VOTES

    def pause(seconds: float) -> None:
        raise Interrupted(seconds)

    return SimpleNamespace(
        engine=SimpleNamespace(exchange=exchange),
        pause=pause,
        connector=SimpleNamespace(wake_soon=lambda: performed.append("wake_soon")),
        wait_for_quorum=lambda timeout: performed.append(("quorum", timeout)),
        client_state=SimpleNamespace(generation=lambda: 0, known_generation=0),
    )


def binding(performed: list[object]) -> Any:
    """A loop binding over the same masters."""
    blocking = masters(performed)

    async def exchange(effect: Exchange) -> Any:
        return operations.perform(effect, blocking)

    async def pause(seconds: float) -> None:
        blocking.pause(seconds)

    async def wait_for_quorum(timeout: float) -> None:
        blocking.wait_for_quorum(timeout)

    def send(requests: Any) -> None:
        operations.perform(Exchange(requests, 0, 0.0), blocking)

    return SimpleNamespace(exchange=exchange, pause=pause, wait_for_quorum=wait_for_quorum, send=send)


@pytest.fixture
def performed() -> list[object]:
    return []


@pytest.fixture(params=["threads", "asyncio"])
def drive(request: pytest.FixtureRequest, performed: list[object]) -> Drive:
    if request.param == "threads":
        return lambda procedure: threads_driver.drive(procedure, masters(performed))
    return lambda procedure: asyncio.run(aio_driver.drive(procedure, binding(performed)))


def test_effects_are_performed_in_order(drive: Drive, performed: list[object]) -> None:
    def procedure() -> Procedure:
        yield WaitForQuorum(0.5)
        votes = yield Exchange([], 1, 0.1)
        nothing = yield Exchange([], 0, 0.0)
        return votes, nothing

    votes, _ = drive(procedure())
    assert votes is VOTES
    assert performed == [("quorum", 0.5), ("exchange", 1), ("exchange", 0), "wake_soon"]


def test_an_exception_is_thrown_into_the_procedure(drive: Drive, performed: list[object]) -> None:
    def procedure() -> Procedure:
        try:
            yield Sleep(1.0)
        except Interrupted:
            yield Exchange([], 0, 0.0)
            raise

    with pytest.raises(Interrupted):
        drive(procedure())
    assert performed == [("exchange", 0), "wake_soon"]


def test_a_procedure_may_return_after_an_exception(drive: Drive) -> None:
    def procedure() -> Procedure:
        try:
            yield Sleep(1.0)
        except Interrupted as error:
            return error.args

    assert drive(procedure()) == (1.0,)


@pytest.mark.parametrize("drive", ["threads"], indirect=True)  # a coroutine raises no StopIteration
def test_stop_iteration_of_an_effect_does_not_end_the_procedure(
    drive: Drive, performed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler raises it while the thread waits. Catches: an acquire that returns None then."""
    monkeypatch.setattr(threads_driver, "perform", Mock(side_effect=[StopIteration, performed.append]))

    def procedure() -> Procedure:
        try:
            yield Exchange([], 1, 0.1)
        except BaseException:
            yield Exchange([], 0, 0.0)
            performed.append("cleaned up")
            raise

    with pytest.raises(RuntimeError, match="raised StopIteration"):
        drive(procedure())
    assert performed == ["cleaned up"]


# --- a child of fork that has a copy of the caller: a greenlet of the parent -----------------------


def releasing(performed: list[object]) -> Procedure:
    """As an acquire: after an exception it sends a release."""
    try:
        yield Exchange([], 1, 1.0)
        yield Exchange([], 2, 1.0)
    except Exception:
        yield Exchange([], 0, 0.0)
        raise
    finally:
        performed.append("cleaned up")


@pytest.mark.parametrize("failing", [False, True])
def test_child_of_fork_sends_nothing_for_its_parent(failing: bool) -> None:
    """Catches: a copy of an acquire that releases the token that its parent was granted."""
    performed: list[object] = []
    of_parent = masters(performed)

    def exchange(*_: object) -> list[Votes]:
        performed.append("exchange")
        of_parent.client_state.generation = lambda: 1
        if failing:
            raise Interrupted
        return VOTES

    of_parent.engine.exchange = exchange
    with pytest.raises(ClientClosed, match="its parent continues"):
        threads_driver.drive(releasing(performed), of_parent)
    assert performed == ["exchange", "cleaned up"]


def test_nothing_is_called_between_the_end_of_a_procedure_and_its_result() -> None:
    """A signal handler that raises in such a call loses the locks of a batch, which no object has yet."""
    performed: list[object] = []
    ended: list[bool] = []

    def generation() -> int:
        if ended:
            raise Interrupted
        return 0

    def granting() -> Procedure:
        yield Exchange([], 2, 1.0)
        ended.append(True)
        return "locks"

    asked = masters(performed)
    asked.client_state.generation = generation
    assert threads_driver.drive(granting(), asked) == "locks"
