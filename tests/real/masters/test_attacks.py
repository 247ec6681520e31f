"""One hostile master of five costs none of the others' calls, little of the client's CPU, and no memory."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.attacks import POLITE_MASTER, TRICKS, Process
from support.thorough import crossed
from support.worker_leaks import resident

from redlock_fast import AsyncFastRedlock, FastRedlock
from redlock_fast.cli import main
from redlock_fast.embedded import Masters

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

#: Turns beside either master at most, and locks of a turn.
TURNS, LOCKS = 3, 100
#: Times the CPU of a lock beside a polite master. A busy loop, and work for each byte of an endless
#: stream, cost 20 times as much and more. Turns are short, so that breaks and dialling are dear in them.
MOST = 4.0
GROWN = 32 << 20
#: Of each way to attack, that which is the most work.
NAMES = ("pushes", "pushes beside", "attributes beside", "drip nested", "long errors", "two replies")
AT_CONNECT = ("flapping", "huge at INFO")


@pytest.fixture(scope="module")
def polite() -> Iterator[Process]:
    with contextlib.closing(Process(POLITE_MASTER)) as one:
        yield one


def threads_turn(urls: list[str], options: dict[str, Any]) -> float:
    """CPU of this process for a lock, in seconds."""
    with FastRedlock(urls, **options) as client:
        client.connect()
        before = time.process_time()
        for number in range(LOCKS):
            lock = client.lock(f"r:{number}", 30)
            assert lock.acquire(timeout=20)
            lock.release()
        spent = time.process_time() - before
        check_health(client.health())
        return spent / LOCKS


async def asyncio_turn(urls: list[str], options: dict[str, Any]) -> float:
    async with AsyncFastRedlock(urls, **options) as client:
        await client.connect()
        before = time.process_time()
        for number in range(LOCKS):
            lock = client.lock(f"r:{number}", 30)
            assert await lock.acquire(timeout=20)
            await lock.release()
        spent = time.process_time() - before
        check_health(client.health())
        return spent / LOCKS


def check_health(health: list[Any]) -> None:
    for one in health:
        for name in one.__slots__:
            assert str(getattr(one, name)).isprintable(), ascii(getattr(one, name))


def turn(mode: str, masters: Masters, hostile: Process, engine: str) -> float:
    options = {"engine": engine, "restart_guard": "off", "node_timeout": 5.0}
    urls = [*masters.urls[:4], hostile.url]
    return threads_turn(urls, options) if mode == "threads" else asyncio.run(asyncio_turn(urls, options))


@pytest.mark.parametrize(("name", "mode"), crossed([*NAMES, *AT_CONNECT], ["threads", "asyncio"]))
def test_cpu_memory_and_text(
    valkey: Masters, polite: Process, engine_name: str, mode: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ratios = []
    with contextlib.closing(Process(name)) as hostile:
        before = turn(mode, valkey, polite, engine_name)
        memory = resident()
        for _ in range(TURNS):
            bad = turn(mode, valkey, hostile, engine_name)
            after = turn(mode, valkey, polite, engine_name)
            ratios.append(2 * bad / (before + after))
            before = after
            if ratios[-1] < MOST:
                break
    assert min(ratios) < MOST, ratios
    assert resident() - memory < GROWN
    for record in caplog.records:
        assert record.getMessage().isprintable(), ascii(record.getMessage())


@pytest.mark.parametrize("name", ["errors", "huge at INFO", "flapping", "attributes beside"])
def test_what_the_command_shows(valkey: Masters, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.closing(Process(name)) as hostile:
        masters = ",".join([*valkey.urls[:4], hostile.url])
        main(["status", "--masters", masters])
    shown = "".join(capsys.readouterr())
    assert shown
    assert all(line.isprintable() for line in shown.split("\n")), ascii(shown)


def test_every_trick_is_named() -> None:
    assert {*NAMES, *AT_CONNECT} <= {*TRICKS}
