"""An outage, and several callers of one client for one name: all learn of it, and at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.clients import both_clients
from support.inside import core_of
from support.waiting import eventually

from redlock_fast import FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters

MakeClient = Callable[..., FastRedlock]

CALLERS = 12
#: The times of a service that is not patient: the library's defaults.
QUICK: dict[str, Any] = {"node_timeout": 0.05, "connect_timeout": 1.0}


def kill(masters: Masters, client: FastRedlock, count: int) -> None:
    for master in masters[:count]:
        master.kill()
    eventually(
        lambda: all(master.state != "connected" for master in client.health()[:count]),
        "the client has noticed",
    )


@both_clients
@pytest.mark.parametrize("options", [{"blocking": False}, {"timeout": 1.0}, {}], ids=str)
def test_an_outage_is_no_holder(masters: Masters, connected: MakeClient, options: dict[str, Any]) -> None:
    """Two of five masters are dead and one hangs. The token of one caller is on the two that are left, for a
    moment, and these refuse the rest.

    Catches: ``False`` where there is no holder, and callers that fail one after the other.
    """
    client = connected(masters, **QUICK)
    names = [master.name for master in client.health()]
    kill(masters, client, 2)
    masters[2].pause()

    def call(_: int) -> float:
        """Seconds until it fails."""
        began = time.monotonic()
        with pytest.raises(QuorumUnavailable) as raised:
            client.lock("free").acquire(**options)
        assert {cause.master for cause in raised.value.causes} >= set(names[:3])
        return time.monotonic() - began

    with ThreadPoolExecutor(CALLERS) as pool:
        seconds = list(pool.map(call, range(CALLERS)))
    assert max(seconds) < QUICK["connect_timeout"] * CALLERS / 2


@both_clients
@pytest.mark.parametrize("options", [{"blocking": False}, {"timeout": 0.1}], ids=str)
def test_a_holder_is_found_by_the_quorum_that_is_left(
    masters: Masters, connected: MakeClient, options: dict[str, Any]
) -> None:
    client = connected(masters)
    kill(masters, client, 2)
    holder, caller = client.lock("held", 60.0), client.lock("held", 60.0)
    assert holder.acquire()
    assert caller.acquire(**options) is False
    assert holder.release()


@both_clients
def test_callers_that_wait_for_a_holder_fail_together(masters: Masters, connected: MakeClient) -> None:
    """Catches: a caller that learns of the outage when the one before it in the local queue has failed."""
    assert connected(masters).lock("held", 60.0).acquire()
    client = connected(masters)
    waiting = core_of(client).policy.local_queue.waiting

    def call(_: int) -> float:
        """When it fails."""
        with pytest.raises(QuorumUnavailable):
            client.lock("held").acquire()
        return time.monotonic()

    with ThreadPoolExecutor(CALLERS) as pool:
        found = pool.map(call, range(CALLERS))
        eventually(lambda: sum(map(len, waiting.values())) == CALLERS, "all of them wait")
        core_of(client).policy.node_timeout, core_of(client).policy.outage_timeout = QUICK.values()
        kill(masters, client, 3)
        began = time.monotonic()
        assert max(found) - began < QUICK["connect_timeout"] * CALLERS / 2
