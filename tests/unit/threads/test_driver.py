"""Both drivers perform the effects of a procedure and throw exceptions into it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from redlock_fast.aio import driver as aio_driver
from redlock_fast.algorithm.effects import Effect, Exchange, Sleep, WaitForQuorum
from redlock_fast.engine.contract import Votes
from redlock_fast.threads import driver as threads_driver

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
    )


def binding(performed: list[object]) -> Any:
    """A loop binding over the same masters."""
    blocking = masters(performed)

    async def exchange(effect: Exchange) -> Any:
        return threads_driver.exchange(effect, blocking)

    async def pause(seconds: float) -> None:
        blocking.pause(seconds)

    async def wait_for_quorum(timeout: float) -> None:
        blocking.wait_for_quorum(timeout)

    def send(effect: Exchange) -> None:
        threads_driver.exchange(effect, blocking)

    return SimpleNamespace(exchange=exchange, pause=pause, wait_for_quorum=wait_for_quorum, send=send)


@pytest.fixture
def performed() -> list[object]:
    return []


@pytest.fixture(params=["threads", "asyncio"])
def drive(request: pytest.FixtureRequest, performed: list[object]) -> Drive:
    if request.param == "threads":
        return lambda procedure, *first: threads_driver.drive(procedure, masters(performed), *first)
    return lambda procedure, *first: asyncio.run(aio_driver.drive(procedure, binding(performed), *first))


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


def test_the_first_result_replaces_the_first_effect(drive: Drive, performed: list[object]) -> None:
    def procedure() -> Procedure:
        return (yield Exchange([], 1, 0.1))

    assert drive(procedure(), VOTES) is VOTES
    with pytest.raises(Interrupted):
        drive(procedure(), Interrupted())
    assert performed == []
