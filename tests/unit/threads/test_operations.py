"""The driver performs the effects of an operation, and sends what it leaves if something ends it early."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from redlock_fast.algorithm.effects import Effect, Exchange, Sleep, WaitForQuorum
from redlock_fast.algorithm.operation import Procedure
from redlock_fast.engine.contract import Request, Votes
from redlock_fast.errors import ClientClosed
from redlock_fast.masters.client_state import ClientState
from redlock_fast.threads import operations
from redlock_fast.wire.commands import Verb

VOTES = [Votes((1,), 1, 1, 0, 0, {})]
UNDO = [Request(Verb.RELEASE, (b"key", b"token"), 1)]
Steps = Generator[Effect, Any, Any]


class Interrupted(Exception):
    """What the effect ``Sleep`` raises here."""


def masters(performed: list[object]) -> Any:
    """Masters that record the effects. A pause raises."""

    def exchange(requests: Any, need: int, *_: object) -> list[Votes]:
        performed.append(("exchange", requests, need))
        return VOTES

    def pause(seconds: float) -> None:
        raise Interrupted(seconds)

    return SimpleNamespace(
        engine=SimpleNamespace(exchange=exchange),
        pause=pause,
        connector=SimpleNamespace(wake_soon=lambda: performed.append("wake_soon")),
        wait_for_quorum=lambda timeout: performed.append(("quorum", timeout)),
        client_state=ClientState(lambda: None),
    )


@pytest.fixture
def performed() -> list[object]:
    return []


def test_effects_are_performed_in_order(performed: list[object]) -> None:
    def steps() -> Steps:
        yield WaitForQuorum(0.5)
        votes = yield Exchange([], 1, 0.1)
        nothing = yield Exchange([], 0, 0.0)
        return votes, nothing

    votes, _ = operations.run(Procedure(steps()), masters(performed))
    assert votes is VOTES
    assert performed == [("quorum", 0.5), ("exchange", [], 1), ("exchange", [], 0), "wake_soon"]


def waiting(ended: list[str]) -> Steps:
    try:
        yield Sleep(1.0)
    finally:
        ended.append("closed")


def test_what_an_operation_leaves_is_sent_after_an_exception(performed: list[object]) -> None:
    ended: list[str] = []
    operation = Procedure(waiting(ended), lambda: [[], UNDO])
    with pytest.raises(Interrupted):
        operations.run(operation, masters(performed))
    assert performed == [("exchange", UNDO, 0), "wake_soon"]
    assert ended == ["closed"]


def test_it_is_sent_again_if_that_is_interrupted(performed: list[object]) -> None:
    asked = masters(performed)
    asked.engine.exchange = Mock(side_effect=[Interrupted, VOTES])
    with pytest.raises(Interrupted):
        operations.run(Procedure(waiting([]), lambda: [UNDO]), asked)
    assert [call.args[0] for call in asked.engine.exchange.call_args_list] == [UNDO, UNDO]


def test_stop_iteration_of_an_effect_is_no_end(
    performed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler raises it while the thread waits. Catches: an acquire that returns None then."""
    monkeypatch.setattr(operations, "perform", Mock(side_effect=StopIteration))
    with pytest.raises(StopIteration):
        operations.run(Procedure(waiting([]), lambda: [UNDO]), masters(performed))
    assert performed == [("exchange", UNDO, 0), "wake_soon"]


def test_stop_iteration_beside_the_generator_is_no_end() -> None:
    """A signal handler raises it as the generator goes on. Catches: an outcome that there is not."""
    steps: Any = Mock(send=Mock(side_effect=StopIteration), gi_frame=object())
    operation = Procedure(steps)
    with pytest.raises(StopIteration):
        operation.begin()
    assert operation.outcome is None


# --- a child of fork that has a copy of the caller: a greenlet of the parent -----------------------


@pytest.mark.parametrize("failing", [False, True])
def test_child_of_fork_sends_nothing_for_its_parent(failing: bool) -> None:
    """Catches: a copy of an acquire that releases the token that its parent was granted."""
    performed: list[object] = []
    of_parent = masters(performed)

    def exchange(*_: object) -> list[Votes]:
        performed.append("exchange")
        of_parent.client_state.after_fork_in_child()
        if failing:
            raise Interrupted
        return VOTES

    def steps() -> Steps:
        yield Exchange([], 1, 1.0)
        yield Exchange([], 2, 1.0)

    of_parent.engine.exchange = exchange
    with pytest.raises(ClientClosed, match="its parent continues"):
        operations.run(Procedure(steps(), lambda: [UNDO]), of_parent)
    assert performed == ["exchange"]


def test_nothing_is_called_between_the_end_of_an_operation_and_its_outcome() -> None:
    """A signal handler that raises in such a call loses the locks of a batch, which no object has yet."""
    ended: list[bool] = []

    class State(ClientState):
        def generation(self) -> int:
            if ended:
                raise Interrupted
            return super().generation()

    def steps() -> Steps:
        yield Exchange([], 2, 1.0)
        ended.append(True)
        return "locks"

    asked = masters([])
    asked.client_state = State(lambda: None)
    assert operations.run(Procedure(steps()), asked) == "locks"
