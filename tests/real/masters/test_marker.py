"""The marker of ``restart_guard="marker"`` is a fact about a master: each client concludes for itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.waiting import eventually

from redlock_fast import FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters
from redlock_fast.wire.dialect import MARKER

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

LEASE = 60.0
SHORT: dict[str, Any] = {"restart_guard": "marker", "max_ttl": 1.0, "ttl": 0.5}
LONG: dict[str, Any] = {"restart_guard": "marker", "max_ttl": LEASE, "ttl": LEASE}


def granted(client: FastRedlock, name: str = "r") -> bool:
    try:
        return client.acquire(name, blocking=False) is not None
    except QuorumUnavailable:
        return False


def restart(masters: Masters, *numbers: int) -> None:
    for number in numbers:
        masters[number].kill()
        masters[number].restart()


@pytest.mark.parametrize(
    ("short", "long"),
    [({"key_prefix": "a:"}, {"key_prefix": "b:"}), ({}, {})],
    ids=["two services", "one service, two values"],
)
def test_each_client_adds_its_own_longest_lease(
    masters: Masters, connected: MakeClient, short: dict[str, str], long: dict[str, str]
) -> None:
    """Catches: the first client writes when *its* wait ends, and one with longer leases believes it.

    ``check_masters="off"``: records refuse two values of max_ttl in one service.
    """
    unchecked = {"check_masters": "off"}
    urls = masters.urls[:3]
    holder = connected(urls, assume_fresh=True, **LONG, **long, **unchecked)
    lock = holder.acquire("r")
    assert lock
    restart(masters, 0, 1)
    first = connected(urls, **SHORT, **short, **unchecked)
    eventually(lambda: granted(first, "other"), "the client with short leases waits for 1 s", deadline=30.0)
    thief = connected(urls, **LONG, **long, **unchecked)
    assert not granted(thief)
    guards = sorted(master.guard for master in thief.health())
    assert guards[0] == 0
    assert all(LEASE / 2 < guard <= LEASE for guard in guards[1:])
    assert lock.locked()


def test_a_clock_that_was_ahead_at_boot_silences_no_longer_than_a_lease(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    """The first client saw each process at a time that is in the future by the corrected clock."""
    nodes = raw(masters)
    for node in nodes:
        ahead = int(time.time() * 1000) + 7_200_000
        node.set(MARKER, f"{node.info('server')['run_id']} {ahead}")
    client = connected(masters, **SHORT)
    assert all(0 < master.guard <= 1.0 for master in client.health())
    assert not granted(client)
    eventually(lambda: granted(client), "it votes after max_ttl", deadline=30.0)


def test_a_marker_of_the_first_form_is_not_believed(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    """It said when the wait of one client ended, in a key that clients of all prefixes shared."""
    for node in raw(masters):
        node.set("redlock:boot", f"{node.info('server')['run_id']} 0")
    client = connected(masters, **LONG)
    assert not granted(client)
    assert all(LEASE / 2 < master.guard <= LEASE for master in client.health())


def test_a_service_calls_masters_fresh_for_itself_only(masters: Masters, connected: MakeClient) -> None:
    """Catches: one service says that the masters have nothing to forget, and another one believes it."""
    assert granted(connected(masters, assume_fresh=True, key_prefix="a:", **LONG))
    assert not granted(connected(masters, key_prefix="b:", **LONG))
