"""Every key on a master while locks of all kinds are held and waited for is in the table of the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from support.waiting import eventually

from redlock_fast import FastRedlock
from redlock_fast.algorithm import attempts
from redlock_fast.algorithm.keys import DERIVED
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

PAGE = Path(__file__).parents[3] / "docs" / "guarantees.md"
PREFIX = "team:"


def rows() -> Iterator[str]:
    """The first cells of the table."""
    table = PAGE.read_text().partition("## Every key on a master")[2].partition("\n## ")[0]
    yield from re.findall(r"(?m)^\| (`.*?) \|", table)


def patterns() -> list[re.Pattern[str]]:
    """What the keys of each row look like, for locks whose names have only letters."""
    found = []
    for row in rows():
        first, *more = re.findall("`(.+?)`", row)
        name = re.escape(first).replace("name", f"{PREFIX}[a-z]+")
        if "hexadecimal" in row:
            name += "[0-9a-f]{32}"
        elif more:  # "from ... to"
            name = name.removesuffix("0") + "[0-9]{1,4}"
        else:
            name = name.replace("…", ".*")
        found.append(re.compile(name if first.startswith(("name", "{")) else f"({PREFIX})?{name}"))
    return found


def test_the_table_has_each_derived_key() -> None:
    uses = {row.partition("`{name}:")[2].partition("`")[0] for row in rows()} - {"", "b:…", "t:…"}
    uses = {use.encode() for use in uses}
    assert uses == {use for use in DERIVED if not use[1:] and use != b"n" and not use.isdigit()} | {b"0"}


@pytest.mark.parametrize("guard", ["auto", "marker"])
def test_what_is_on_a_master_is_in_the_table(
    masters: Masters, connected: MakeClient, raw: Raw, guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "REFUSED_ROUNDS", 1)  # a writer that waits takes the turn
    options: dict[str, Any] = {"restart_guard": guard, "check_masters": "auto", "key_prefix": PREFIX}
    client, other = (connected(masters, assume_fresh=True, **options) for _ in range(2))
    nodes, seen = raw(masters), set[str]()
    nodes[0].select(1)
    nodes[0].set("of another program", "x")  # so that clients keep a witness
    nodes[0].select(0)
    third = connected(masters, assume_fresh=True, **options)
    held = [
        client.lock("fenced", fencing=True),
        client.lock("queued", fair=True),
        client.rwlock("book").read(),
        client.semaphore("slots", 3),
        client.multilock(["first", "second"]),
    ]
    with ThreadPoolExecutor() as pool:
        for lock in held:
            assert lock.acquire()
        waiting = [other.lock("queued", fair=True, timeout=60.0), other.rwlock("book", timeout=60.0).write()]
        waiters = [pool.submit(lock.acquire) for lock in waiting]

        def look() -> bool:
            for node in nodes:
                seen.update(key.decode() for key in node.scan_iter())
            return {f"{{{PREFIX}{end}" for end in ("queued}:q", "book}:i", "book}:t:")} <= seen

        eventually(look, "both wait on the masters")
        for lock in held:
            assert lock.release()
        for waiter, lock in zip(waiters, waiting, strict=True):
            assert waiter.result()
            look()
            assert lock.release()
    assert third.stats().acquired == 0
    known = patterns()
    assert {key for key in seen if not any(one.fullmatch(key) for one in known)} == set()
    used = [one for one in known if any(one.fullmatch(key) for key in seen)]
    assert len(known) - len(used) <= 3, "of the rows only what lasts for a moment was not seen"
