"""What is made on the hot path in another way than by its class is the same."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.inside import core_of

from redlock_fast import ConfigError, FastRedlock, Lock
from redlock_fast.algorithm.lease import Lease, plain_lease
from redlock_fast.algorithm.lock_kind import LockKind
from redlock_fast.locks.lock_state import plain_lock


def fields(made: Any) -> dict[str, Any]:
    """All that Python can see: where they are compiled, some fields are C's alone."""
    slots = [name for kind in type(made).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: getattr(made, name, None) for name in slots if name != "__weakref__"}


def test_both_ways() -> None:
    """Catches: a field that one of them forgets."""
    what: Any = b"k", b"token", 31, 10.0, 9.5, 9.0
    assert fields(plain_lease(*what)) == fields(Lease(*what))
    client = FastRedlock(["redis://127.0.0.1:1"], ttl=7.0)
    for ttl in (None, 3.0):
        short, usual = fields(plain_lock(Lock, core_of(client), "r", ttl)), fields(client.lock("r", ttl))
        assert type(short.pop("_lock_kind")) is type(usual.pop("_lock_kind")) is LockKind
        assert short == usual


def test_seconds_to_try() -> None:
    """Infinity is an end of its own: none. Catches: the lock's timeout in its place."""
    lock = FastRedlock(["redis://127.0.0.1:1"]).lock("r", timeout=0.5)
    assert lock._waiting_time(True, -1) == 0.5
    assert lock._waiting_time(True, 3) == 3.0
    assert lock._waiting_time(True, math.inf) is None
    assert lock._waiting_time(False, -1) is None
    with pytest.raises(ConfigError, match="blocking is False"):
        lock._waiting_time(False, 3)
