"""Every way in which five masters can be taken, or stopped: which client gets the lock, and what is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from support.inside import core_of
from support.waiting import eventually

from redlock_fast import FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters

pytestmark = pytest.mark.usefixtures("all_masters")

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

OTHER_CLIENT = b"another client"
MASKS = range(1 << 5)


#: ``node_timeout`` where a majority decides, long before it, and where only the timeout can end the call.
PATIENT, HASTY = 20.0, 0.04


def members(mask: int) -> list[int]:
    return [master for master in range(5) if mask >> master & 1]


def settle(client: FastRedlock) -> None:
    """Everything that was sent is executed: what is on the masters now would stay there."""

    def answered() -> bool:
        core_of(client).masters.engine.maintain()
        return not any(master.pending for master in client.health())

    eventually(answered, "all masters have answered")


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: f"{mask:05b}")
def test_masters_taken_by_others(masters: Masters, connected: MakeClient, raw: Raw, mask: int) -> None:
    nodes, client = raw(masters), connected(masters, node_timeout=PATIENT)
    foreign = [OTHER_CLIENT if master in members(mask) else None for master in range(5)]
    for master in members(mask):
        nodes[master].set("r", OTHER_CLIENT)
    lock = client.lock("r")
    acquired = lock.acquire(blocking=False)
    assert acquired is (foreign.count(None) >= 3)
    settle(client)
    ours = lock.token if acquired else None
    assert [node.get("r") for node in nodes] == [value or ours for value in foreign]
    assert lock.release() is acquired
    settle(client)
    assert [node.get("r") for node in nodes] == foreign
    assert [node.pttl("r") for node in nodes] == [-1 if value else -2 for value in foreign]
    assert [node.dbsize() for node in nodes] == [1 if value else 0 for value in foreign]


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: f"{mask:05b}")
def test_masters_stopped(masters: Masters, connected: MakeClient, raw: Raw, mask: int) -> None:
    stopped = members(mask)
    client = connected(masters, node_timeout=PATIENT if len(stopped) <= 2 else HASTY)
    names = [master.name for master in client.health()]
    lock = client.lock("r")
    for master in stopped:
        masters[master].pause()
    try:
        if len(stopped) <= 2:
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
    connected: MakeClient,
    raw: Raw,
    taken: tuple[int, ...],
    stopped: tuple[int, ...],
    outcome: bool | None,
) -> None:
    """None: neither free nor held, for all that can be known."""
    nodes, client = raw(masters), connected(masters, node_timeout=HASTY if outcome is None else PATIENT)
    for master in taken:
        nodes[master].set("r", OTHER_CLIENT)
    for master in stopped:
        masters[master].pause()
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
