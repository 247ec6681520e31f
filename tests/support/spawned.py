"""Functions for processes that multiprocessing spawns: these import them by name."""

from __future__ import annotations

from redlock_fast import FastRedlock, Lock


def try_lock(urls: list[str], engine: str, name: str) -> bool:
    """Whether a new client in this process gets the lock."""
    with FastRedlock(
        urls, engine=engine, node_timeout=5.0, connect_timeout=20.0, check_masters="off"
    ) as client:
        return client.acquire(name, ttl=60.0, blocking=False) is not None


#: A lock that is held until the process ends.
kept: Lock | None = None


def keep_lock(urls: list[str], engine: str, name: str) -> None:
    """Return with a lock that is held until this process ends."""
    global kept
    client = FastRedlock(urls, engine=engine, node_timeout=5.0, connect_timeout=20.0, check_masters="off")
    kept = client.acquire(name, ttl=60.0)
    assert kept
