"""Masters that lose their records while others are down: clients write the records back, and vote again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest
import redis
from support.clients import both_clients
from support.waiting import DEADLINE, eventually

from redlock_fast import FastRedlock
from redlock_fast.embedded import Masters
from redlock_fast.masters.membership import KEY

MakeClient = Callable[..., FastRedlock]


def subsets(of: range | list[int], most: int) -> Iterator[list[int]]:
    for size in range(most + 1):
        for found in combinations(of, size):
            yield list(found)


def has_record(url: str) -> bool:
    with redis.Redis.from_url(url) as node:
        return bool(node.exists(KEY))


def listed(one: FastRedlock) -> bool:
    return all(master.listed for master in one.health())


@pytest.fixture
def make(client: MakeClient) -> MakeClient:
    """A client whose votes depend on records alone: the restart guard is another subject."""

    def made(masters: Any, **options: Any) -> FastRedlock:
        return client(masters, **{"check_masters": "auto", "restart_guard": "off", **options})

    return made


#: Of five and seven masters: which are down, and how many of the others are blank.
LARGER = [(5, [0, 1], 1), (5, [0, 1], 3), (5, [4], 3), (7, [0, 1, 2], 1), (7, [0, 1, 2], 4)]


@pytest.mark.parametrize(("masters", "down", "blank"), LARGER)
def test_a_minority_is_down_and_others_lost_their_records(
    make: MakeClient, masters: int, down: list[int], blank: int
) -> None:
    with Masters(masters) as fleet:
        running = make(fleet)
        assert running.connect()
        eventually(lambda: listed(running), "the list is in force")
        for n in down:
            fleet[n].kill()
        for n in [n for n in range(masters) if n not in down][:blank]:
            fleet[n].kill()
            fleet[n].restart()
        assert running.lock("orders").acquire(timeout=DEADLINE)
        new = make(fleet)
        assert new.lock("invoices").acquire(timeout=DEADLINE)


@both_clients
def test_any_masters_lose_their_records_beside_any_minority_that_is_down(make: MakeClient) -> None:
    """The running client gets a lock, and then a new process does.

    Catches: a record that is written back only if a quorum has it now, so that there is no lock ever again.
    """
    with Masters(3) as fleet:
        running = make(fleet)
        assert running.connect()
        eventually(lambda: listed(running), "the list is in force")
        for down in subsets(range(3), 1):
            for blank in subsets([n for n in range(3) if n not in down], 3):
                case = f"down: {down}, blank: {blank}"
                for n in down:
                    fleet[n].kill()
                for n in blank:
                    fleet[n].kill()
                    fleet[n].restart()
                assert running.lock("orders").acquire(timeout=DEADLINE), case
                new = make(fleet)
                assert new.lock("invoices").acquire(timeout=DEADLINE), case
                new.close()
                for n in down:
                    fleet[n].restart()
                eventually(lambda: all(has_record(url) for url in fleet.urls), f"{case}: all have records")
                eventually(lambda: running.connect(0.1) and listed(running), f"{case}: all vote")
                for url in fleet.urls:
                    with redis.Redis.from_url(url) as node:
                        node.delete("orders", "invoices")


def test_a_lost_record_is_noticed_on_an_open_connection(
    make: MakeClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key was deleted, and its connection stays. Catches: an error of the thread that looks for that."""
    monkeypatch.setattr("redlock_fast.masters.records.RECHECK_INTERVAL", 0.1)
    failed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    with Masters(3) as fleet:
        running = make(fleet)
        assert running.connect()
        eventually(lambda: all(has_record(url) for url in fleet.urls) and listed(running), "in force")
        with redis.Redis.from_url(fleet.urls[0]) as node:
            node.delete(KEY)
        eventually(lambda: has_record(fleet.urls[0]), "the client writes it back")
    assert failed == []
    assert "connector-error" not in caplog.text
