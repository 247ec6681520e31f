"""Every way in which five masters can be taken, or stopped: which client gets the lock, and what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis
from support.waiting import eventually

from redlock_fast import FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters

pytestmark = pytest.mark.usefixtures("all_masters")

Raw = Callable[[Masters], list[redis.Redis]]

OTHER_CLIENT = b"another client"
MASKS = range(1 << 5)


def clients(masters: Masters, engine_name: str, node_timeout: float) -> Iterator[FastRedlock]:
    with FastRedlock(
        masters.urls, engine=engine_name, node_timeout=node_timeout, connect_timeout=20
    ) as client:
        client.connect()
        eventually(lambda: {master.state for master in client.health()} == {"connected"}, "all connect")
        yield client


@pytest.fixture
def patient(masters: Masters, engine_name: str) -> Iterator[FastRedlock]:
    """For what a majority decides: it does so long before the timeout."""
    yield from clients(masters, engine_name, 20.0)


@pytest.fixture
def hasty(masters: Masters, engine_name: str) -> Iterator[FastRedlock]:
    """For what only the timeout can end."""
    yield from clients(masters, engine_name, 0.04)


def members(mask: int) -> list[int]:
    return [master for master in range(5) if mask >> master & 1]


def settle(client: FastRedlock) -> None:
    """Everything that was sent is executed: what is on the masters now would stay there."""

    def answered() -> bool:
        client.masters.engine.maintain()
        return not any(master.pending for master in client.health())

    eventually(answered, "all masters have answered")


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: f"{mask:05b}")
def test_masters_taken_by_others(masters: Masters, patient: FastRedlock, raw: Raw, mask: int) -> None:
    nodes = raw(masters)
    foreign = [OTHER_CLIENT if master in members(mask) else None for master in range(5)]
    for master in members(mask):
        nodes[master].set("r", OTHER_CLIENT)
    lock = patient.lock("r")
    acquired = lock.acquire(blocking=False)
    assert acquired is (foreign.count(None) >= 3)
    settle(patient)
    ours = lock.token if acquired else None
    assert [node.get("r") for node in nodes] == [value or ours for value in foreign]
    assert lock.release() is acquired
    settle(patient)
    assert [node.get("r") for node in nodes] == foreign
    assert [node.pttl("r") for node in nodes] == [-1 if value else -2 for value in foreign]
    assert [node.dbsize() for node in nodes] == [1 if value else 0 for value in foreign]


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: f"{mask:05b}")
def test_masters_stopped(
    masters: Masters, patient: FastRedlock, hasty: FastRedlock, raw: Raw, mask: int
) -> None:
    stopped = members(mask)
    client = patient if len(stopped) <= 2 else hasty
    names = [master.name for master in client.health()]
    lock = client.lock("r")
    for master in stopped:
        masters[master].pause()
    try:
        if client is patient:
            assert lock.acquire(blocking=False) is True
            assert lock.extend(20) > 10
            assert lock.release() is True
        else:
            with pytest.raises(QuorumUnavailable) as error:
                lock.acquire(blocking=False)
            assert {cause.master for cause in error.value.causes} >= {names[master] for master in stopped}
            assert not lock.locked()
    finally:
        for master in stopped:
            masters[master].resume()
    settle(client)
    assert [node.dbsize() for node in raw(masters)] == [0] * 5
    assert {master.state for master in client.health()} == {"connected"}


@pytest.mark.parametrize(
    ("taken", "stopped", "outcome"),
    [
        ((0,), (1,), True),
        ((0, 1, 2), (), False),
        ((0, 1, 2), (3,), False),
        ((0, 1, 2), (3, 4), False),
        ((0, 1), (2, 3, 4), None),
        ((0,), (2, 3, 4), None),
        ((), (2, 3, 4), None),
    ],
)
def test_masters_taken_and_stopped(
    masters: Masters,
    patient: FastRedlock,
    hasty: FastRedlock,
    raw: Raw,
    taken: tuple[int, ...],
    stopped: tuple[int, ...],
    outcome: bool | None,
) -> None:
    """None: neither free nor held, for all that can be known."""
    nodes = raw(masters)
    for master in taken:
        nodes[master].set("r", OTHER_CLIENT)
    for master in stopped:
        masters[master].pause()
    client = hasty if outcome is None else patient
    lock = client.lock("r")
    try:
        if outcome is None:
            with pytest.raises(QuorumUnavailable):
                lock.acquire(blocking=False)
        else:
            assert lock.acquire(blocking=False) is outcome
            assert lock.release() is outcome
    finally:
        for master in stopped:
            masters[master].resume()
    settle(client)
    assert [node.get("r") for node in nodes] == [
        OTHER_CLIENT if master in taken else None for master in range(5)
    ]
