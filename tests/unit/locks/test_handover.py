"""Locks with a token of another process: what is refused before any I/O."""

from __future__ import annotations

from typing import Any

import pytest

from redlock_fast import AsyncFastRedlock, ConfigError, FastRedlock, LockLost

URLS = [f"redis://10.0.0.{number}" for number in range(1, 4)]

clients = pytest.mark.parametrize("make", [FastRedlock, AsyncFastRedlock])


@clients
@pytest.mark.parametrize("token", ["text", b"", b"x" * 1025, bytearray(b"x"), 5, True], ids=str)
def test_bad_tokens(make: Any, token: Any) -> None:
    with pytest.raises(ConfigError, match="token must be"):
        make(URLS).lock("r", token=token)


@clients
def test_kinds_that_have_more_than_a_token(make: Any) -> None:
    client = make(URLS)
    for call in (
        lambda: client.lock("r", fair=True, token=b"t"),
        lambda: client.rwlock("r", token=b"t").read(),
        lambda: client.semaphore("r", 3, token=b"t"),
        lambda: client.rlock("r", token=b"t"),
        lambda: client.multilock(["r"], token=b"t"),
    ):
        with pytest.raises(ConfigError, match="token"):
            call()
    with pytest.raises(ConfigError, match="fencing"):
        client.lock("r", fencing=True, token=b"t")


@clients
def test_nothing_to_detach(make: Any) -> None:
    client = make(URLS)
    for lock in (client.lock("r"), client.lock("r", token=b"t"), client.semaphore("r", 3)):
        with pytest.raises(LockLost, match="nothing to detach"):
            lock.detach()


@clients
def test_a_reentrant_lock_is_not_detached(make: Any) -> None:
    """Held or not: its levels are in this process."""
    lock = make(URLS).rlock("r")
    for one in (lock, lock.owned_by("order 42")):
        with pytest.raises(ConfigError, match="plain locks"):
            one.detach()
