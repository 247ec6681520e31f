"""Records of the phases of a change, written as ``redlock-fast masters`` writes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.inside import core_of
from support.waiting import DEADLINE, eventually

from redlock_fast import FastRedlock
from redlock_fast.embedded import Masters
from redlock_fast.masters.membership import KEY, PHASE_1, PHASE_2, Record, decode, encode, members

#: The masters of both lists, by number.
OLD, NEW = [0, 1, 2], [2, 3, 4]
TO_NEW: dict[str, Any] = {"epoch": 3, "steps": ("joint",), "toward": "new"}
AT_PHASE_2: dict[str, Any] = {"epoch": 4, "steps": PHASE_2, "toward": ""}

#: Attempts that a client may begin before a phase.
ATTEMPTS: dict[str, Callable[[Any], Any]] = {
    "acquire": lambda client: client.acquire("r", blocking=False),
    "acquire_many": lambda client: client.acquire_many(["r"])[0],
}


class HeldUp:
    """The first attempt of ``client``: its thread stops between the start and the requests.

    ``begun``: it has started. It continues after ``go_on``.
    """

    def __init__(self, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self._engine = core_of(client).masters.engine
        monkeypatch.setattr(core_of(client).masters, "engine", self)

    def exchange(self, requests: Any, need: Any, *more: Any) -> Any:
        if need and not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(DEADLINE)
        return self._engine.exchange(requests, need, *more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def options(lease: float) -> dict[str, Any]:
    """Of a client that is compared with the records."""
    return {"check_masters": "auto", "max_ttl": lease, "ttl": lease}


def of_old_list(urls: list[str], client: Callable[..., FastRedlock], lease: float) -> Any:
    """A client of the old list, which is in force."""
    made = client(urls, **options(lease))
    assert made.connect()
    eventually(lambda: all(master.listed for master in made.health()), "its list is in force")
    return made


def write_phase_1(masters: Masters, nodes: list[redis.Redis], old: list[int], new: list[int]) -> None:
    """The records of phase 1 of a change on every master, and cut connections."""
    records = {n: decode(nodes[n].get(KEY)) for n in old}  # type: ignore[arg-type]
    ids = {n: f"{n:032x}" for n in new} | {n: record.id for n, record in records.items()}
    after = members({ids[n]: f"{masters.urls[n].removeprefix('redis://')}/0" for n in new})
    of_old = records[old[0]]
    phase_1 = of_old._replace(epoch=2, steps=PHASE_1, old=of_old.new, new=after, in_force=True)
    for n, id in ids.items():
        write(nodes[n], phase_1.of(id))


def write(node: redis.Redis, record: Record) -> None:
    node.set(KEY, encode(record))
    node.client_kill_filter(_type="normal", skipme=True)


def write_terms(nodes: list[redis.Redis], **terms: Any) -> None:
    """Another phase."""
    for node in nodes:
        write(node, decode(node.get(KEY))._replace(**terms))  # type: ignore[arg-type]
