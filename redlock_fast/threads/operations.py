"""Runs operations with the calling thread.

A signal handler may raise between any two steps, and in an exchange. What an operation may have left on the
masters is then sent off by ``run``, and nowhere else. It is compiled where a compiler is available, with the
types of ``threads/operations.pxd``: no handler runs between the steps of compiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..algorithm.effects import Effect, Exchange, Sleep, WaitForChange, WaitForReconnect, WaitForTurn
from ..algorithm.lease import AcquireFailure, Lease
from ..algorithm.operation import Message, Operation
from ..errors import ClientClosed
from ..locks.bodies import Body
from ..locks.lock_state import LockState
from ..locks.operations import new_acquire, new_release
from ..masters.client_state import CONTINUED_BY_PARENT, ClientState
from ..masters.faults import has_faults, note_faults
from ..masters.masters import Masters


def acquire(
    lock: LockState, blocking: bool, timeout: float | None, masters: Masters, body: Body | None = None
) -> Lease | AcquireFailure:
    """Acquire ``lock``. Returns the lease, or why there is none. ``body``: of the call; it gets the lease."""
    outcome: Lease | AcquireFailure = run(new_acquire(lock, blocking, timeout, body), masters)
    return outcome


def release(lock: LockState, masters: Masters, only: Lease | None = None) -> bool:
    """Release ``lock``. True: a quorum still had the lease. ``only``: no other lease is released."""
    lease = lock._lease if only is None else only
    try:
        alive: bool = run(new_release(lock, only), masters)
        return alive
    except BaseException:
        if lease is not None and lock._lease is lease:  # a signal handler raised before the operation began
            clean_up(new_release(lock, lease), masters, None)
        raise


def run(operation: Operation, masters: Masters, wait: Callable[[Effect, Masters], Any] | None = None) -> Any:
    """Perform ``operation``. Returns its outcome. ``wait`` performs what is no exchange of the operation.

    Raises ClientClosed in a child of fork that has a copy of the call: the parent's call goes on, with the
    same token. So the child must neither use nor release it.
    """
    state = masters.client_state
    generation = state.generation()
    try:
        perform_each(operation, masters, state, generation, wait or perform)
        if state.known_generation != generation:  # a signal handler forked in the meantime
            raise ClientClosed(CONTINUED_BY_PARENT)
        operation.close()
        return operation.outcome
    except BaseException as error:
        if state.generation() != generation:
            operation.close()
            raise ClientClosed(CONTINUED_BY_PARENT) from None
        clean_up(operation, masters, error)
        raise


def perform_each(
    operation: Operation,
    masters: Masters,
    state: ClientState,
    generation: int,
    wait: Callable[[Effect, Masters], Any],
) -> None:
    """Perform the effects of ``operation``, until there is an outcome, or until a signal handler has forked.

    This loop is a function of its own, which ``run`` calls inside its ``try``: CPython 3.13 and 3.14 may run
    a signal handler where a turn of a loop ends, and a ``try`` in the function of the loop would not catch
    what the handler raises there.
    """
    effect: Any = operation.begin()
    while effect is not None and state.known_generation == generation:
        if effect is operation:
            result = exchange(
                operation.requests, operation.need, operation.timeout, operation.wait, 0.0, masters
            )
        else:
            result = wait(effect, masters)
        if state.generation() != generation:
            return
        effect = operation.advance(result)


def clean_up(operation: Operation, masters: Masters, error: BaseException | None) -> None:
    """Send what ``operation``, which ``error`` ended, must not leave undone.

    Once more if a signal handler raises in the meantime.
    """
    try:
        send_off(operation, masters, error)
    except BaseException:
        send_off(operation, masters, error)
        raise


def send_off(operation: Operation, masters: Masters, error: BaseException | None) -> None:
    for requests in operation.abort():
        send(requests, masters)
    operation.close(error)


def send(requests: Message, masters: Masters) -> None:
    """Send ``requests``, if there are any, without waiting for replies."""
    if requests:
        exchange(requests, 0, 0.0, 0, 0.0, masters)


def exchange(requests: Message, need: Any, timeout: float, wait: int, stall: float, masters: Masters) -> Any:
    """The answers to ``requests``. Without ``need`` they are sent, and no reply is awaited."""
    answers: Any = masters.engine.exchange(requests, need, timeout, wait, stall)
    if has_faults(answers, masters):
        note_faults(answers, masters)
    if not need:
        masters.connector.wake_soon()
    return answers


def perform(effect: Effect, masters: Masters) -> Any:
    """The result of an effect that is not the operation itself."""
    if isinstance(effect, Exchange):
        answers = exchange(effect.requests, effect.need, effect.timeout, effect.wait, effect.stall, masters)
        if type(effect) is WaitForChange:
            masters.check_not_closed()  # the change may be a release at the end of this process
        return answers
    if type(effect) is Sleep:
        masters.pause(effect.seconds)
    elif type(effect) is WaitForReconnect:
        masters.reconnect(effect.seconds, effect.disconnected, effect.silent)
    elif type(effect) is WaitForTurn:
        masters.wait_for_turn(effect.entry, effect.seconds)
    else:
        masters.wait_for_quorum(effect.timeout)  # type: ignore[union-attr]
    return None


def exit_lock(
    lock: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """The end of ``with lock``: ``Lock._exit`` releases the lock.

    If a signal handler raises just when ``_exit`` is entered, before it can release the lock, this does so.
    It may raise at the entry of any function of Python: so ``with`` ends in a compiled function.
    """
    lease = lock._lease
    try:
        lock._exit(error)
    except BaseException:
        lock._drop(lease)
        raise


def exit_run(
    run: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """The same for ``with`` a SingleRun."""
    try:
        run._exit(kind, error, trace)
    except BaseException:
        run._interrupted(kind)
        raise
