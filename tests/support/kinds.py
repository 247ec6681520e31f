"""Locks of the kinds that have no plain lock on their name, for tests of what they all can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

from redlock_fast.algorithm.effects import Exchange
from redlock_fast.algorithm.lock_kind import LockKind
from redlock_fast.algorithm.operation import Procedure
from redlock_fast.engine.contract import Request, Wait
from redlock_fast.threads.operations import run

#: By name: a new lock of that kind on a resource of a client for threads or for asyncio.
Make = Callable[..., Any]
KINDS: dict[str, Make] = {
    "reader": lambda client, name, **options: client.rwlock(name, **options).read(),
    "writer": lambda client, name, **options: client.rwlock(name, **options).write(),
    "slot": lambda client, name, **options: client.semaphore(name, 1, **options),
}
#: The kind of a lock that excludes one of this kind.
AGAINST = {"reader": "writer", "writer": "reader", "slot": "slot"}


def values(client: Any, *requests: Request) -> list[tuple[int, ...]]:
    """What every master of a client for threads says to these, one after the other."""
    answers = []
    for request in requests:
        answers += run(
            Procedure(_once(request, client._core.policy.voters.lists.masters)), client._core.masters
        )
    return [votes.values for votes in answers]


def _once(request: Request, need: int) -> Any:
    return (yield Exchange([request], need, 20.0, Wait.ALL))


def claim_of(lock: Any) -> LockKind:
    """What this lock asks of the masters."""
    lock_kind: LockKind = lock._lock_kind.for_attempt()
    return lock_kind


def waiting_writers(nodes: list[redis.Redis], name: str) -> list[int]:
    """How many places each master keeps."""
    return [int(node.zcard(f"{{{name}}}:i")) for node in nodes]
