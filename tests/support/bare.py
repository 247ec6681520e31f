"""Acquires and releases without a lock object: the algorithm alone, as procedures."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any

from redlock_fast.algorithm.effects import Effect, Exchange
from redlock_fast.algorithm.lease import Lease
from redlock_fast.algorithm.lock_kind import LockKind
from redlock_fast.algorithm.operation import Message, Operation
from redlock_fast.algorithm.operations import Acquire, Release
from redlock_fast.algorithm.policy import Policy
from redlock_fast.engine.contract import Wait


class BareAcquire(Acquire):
    """``until``: the end by the lease clock. ``on_granted``: gets a lease at once."""

    def __init__(
        self,
        policy: Policy,
        lock_kind: LockKind,
        ttl: float = 10.0,
        until: float | None = None,
        rounds: int | None = None,
        on_granted: Callable[[Lease], object] = lambda lease: None,
    ) -> None:
        self.limit = rounds
        seconds = math.inf if until is None else until - policy.clock()
        super().__init__(policy, lock_kind, ttl, seconds, blocking=True)
        if until is not None:
            self.give_up_at = until
        self.report = on_granted

    @property
    def rounds(self) -> int | None:
        return self.limit

    def on_granted(self, lease: Lease) -> None:
        self.report(lease)


def acquire(*arguments: Any) -> Generator[Any, Any, Any]:
    """The effects of a ``BareAcquire``."""
    return performed(BareAcquire(*arguments))


def release(policy: Policy, lease: Lease) -> Generator[Any, Any, Any]:
    return performed(Release(policy, lease))


def performed(operation: Operation) -> Generator[Effect, Any, Any]:
    """The effects of ``operation``, for a driver in virtual time. Returns the outcome."""
    try:
        effect = operation.begin()
        while effect is not None:
            effect = operation.advance((yield as_effect(operation, effect)))
        return operation.outcome
    except GeneratorExit:  # the process is dead: it sends nothing
        raise
    except BaseException:
        yield from _sent(operation.abort())
        raise
    finally:
        operation.close()


def as_effect(operation: Operation, effect: Effect | Operation) -> Effect:
    """``effect``, or the exchange of ``operation`` as an object of its own."""
    if isinstance(effect, Operation):
        return Exchange(operation.requests, operation.need, operation.timeout, Wait(operation.wait))
    return effect


def _sent(messages: list[Message]) -> Generator[Effect, Any, None]:
    """Send ``messages``, and once more if an exception interrupts this."""
    try:
        yield from _each(messages)
    except BaseException:
        yield from _each(messages)
        raise


def _each(messages: list[Message]) -> Generator[Effect, Any, None]:
    for message in messages:
        if message:
            yield Exchange(message, 0, 0.0)
