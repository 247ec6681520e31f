"""An attempt by the old list is held up over ``reconfigure``, and masters are connected after it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import redis
from support.inside import core_of
from support.phases import (
    AT_PHASE_2,
    ATTEMPTS,
    NEW,
    OLD,
    TO_NEW,
    HeldUp,
    of_old_list,
    options,
    write_phase_1,
    write_terms,
)
from support.proxy import Proxy
from support.waiting import DEADLINE, eventually, start

from redlock_fast import FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters

pytestmark = pytest.mark.usefixtures("all_masters")

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]
#: Seconds. No lease ends during a test.
LEASE = 60.0


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_master_that_is_connected_later_does_not_count_for_the_old_list(
    masters: Masters, client: MakeClient, raw: Raw, monkeypatch: pytest.MonkeyPatch, attempt: str
) -> None:
    """Master 0 has not got the phases. 2 is connected again before ``reconfigure``, 1 after it."""
    nodes = raw(masters)
    with contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(masters[n].port)) for n in OLD]
        urls = [proxy.url for proxy in proxies]
        late = of_old_list(urls, client, LEASE)
        states = core_of(late).masters.connector.roster.masters
        for proxy in proxies[1:]:  # a partition between the client and these masters
            proxy.refusing = True
            proxy.cut()
        write_phase_1(masters, nodes, OLD, NEW)
        eventually(
            lambda: states[0].link.attached and states[0].record.seen.record.epoch == 2,
            "it reads phase 1 at 0",
        )
        # The operator cannot reach master 0. A quorum of each list has the phases: {1, 2} and {2, 3, 4}.
        for terms in TO_NEW, AT_PHASE_2:
            write_terms(nodes[1:], **terms)
        second = client([masters.urls[n] for n in NEW], **options(LEASE)).lock("r")
        masters[2].pause()  # the second holder has 3 and 4
        assert second.acquire(timeout=DEADLINE)
        masters[2].resume()
        held_up = HeldUp(late, monkeypatch)
        first = start(lambda: ATTEMPTS[attempt](late))
        assert held_up.begun.wait(DEADLINE)
        proxies[2].refusing = False
        eventually(lambda: states[2].link.attached, "2 is connected again")
        late.reconfigure([urls[2], *masters.urls[3:]], joint_with=urls, timeout=DEADLINE)
        proxies[1].refusing = False
        eventually(lambda: states[1].link.attached, "1 is connected again")
        proxies[2].hold()  # the votes of 0 and 1 decide
        held_up.go_on.set()
        with contextlib.suppress(QuorumUnavailable):
            assert first.result(DEADLINE) is None, "two holders"
        assert second.locked()
