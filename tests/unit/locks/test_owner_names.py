"""The owner that a token names: checked before any I/O, right in each thread and in a child of fork."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from redlock_fast import ConfigError, FastRedlock
from redlock_fast.algorithm.tokens import MAX_OWNER, owner_of
from redlock_fast.locks import owner_names
from redlock_fast.locks.owner_names import check_owner, default_owner, thread_owner

RANDOM = bytes(range(20))


def named(owner: Callable[[], bytes] = thread_owner) -> str:
    return owner_of(RANDOM + owner())


@pytest.mark.parametrize("owner", [5, b"bytes", "x" * 65, "ä" * 33, "\x1b" * 17, "\ud800" * 11, "a" * 10**6])
def test_a_bad_owner_is_a_config_error(owner: Any) -> None:
    with FastRedlock(["redis://nowhere"]) as client:
        makers = [
            lambda: client.lock("r", owner=owner),
            lambda: client.rlock("r", owner=owner),
            lambda: client.multilock(["r"], owner=owner),
            lambda: client.semaphore("r", 2, owner=owner),
            lambda: FastRedlock(["redis://nowhere"], owner=owner),
        ]
        for make in makers:
            with pytest.raises(ConfigError, match="owner must"):
                make()


def test_control_characters_are_escaped() -> None:
    assert check_owner("a\x1b[31m\u202eb") == "a\\x1b[31m\\u202eb"
    assert check_owner("ä" * 32) == "ä" * 32
    assert check_owner("") == ""


def test_the_default_names_host_process_and_thread() -> None:
    assert named() == f"{socket.gethostname().partition('.')[0][-36:]}:{os.getpid()}:MainThread"[:64]
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(named()), name="w" * 100)
    thread.start()
    thread.join()
    assert found[0].endswith("ww...")
    assert len(found[0].encode()) == MAX_OWNER
    assert len(default_owner("ä" * 40).encode()) <= MAX_OWNER


def test_a_child_of_fork_has_its_own() -> None:
    here = named()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, f"{os.getpid()} {named()}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    pid, there = os.read(reading, 1000).decode().split(" ", 1)
    assert f":{pid}:" in there
    assert there != here
    assert owner_names._cache is not None
