"""An attempt of the old list that is held up over ``reconfigure``; its master is connected again after it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.phases import write_phase_1, write_terms
from support.proxy import Proxy
from support.waiting import DEADLINE, eventually, start

from redlock_fast import FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters
from redlock_fast.masters.membership import PHASE_2

pytestmark = pytest.mark.usefixtures("all_masters")

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]
LONG = 60.0
OLD, NEW = [0, 1, 2], [2, 3, 4]
TO_NEW: dict[str, Any] = {"epoch": 3, "steps": ("joint",), "toward": "new"}
AT_PHASE_2: dict[str, Any] = {"epoch": 4, "steps": PHASE_2, "toward": ""}
ATTEMPTS: dict[str, Callable[[Any], Any]] = {
    "acquire": lambda client: client.acquire("r", blocking=False),
    "acquire_many": lambda client: client.acquire_many(["r"])[0],
}


def options(lease: float) -> dict[str, Any]:
    return {"check_masters": "auto", "max_ttl": lease, "ttl": lease}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_an_attempt_of_a_former_list_does_not_count_a_master_that_connects_later(
    masters: Masters, client: MakeClient, raw: Raw, attempt: str
) -> None:
    """Master 0 missed the phases. 2 is connected again before ``reconfigure``, 1 after it."""
    nodes, begun, go_on = raw(masters), threading.Event(), threading.Event()
    with contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(masters[n].port)) for n in OLD]
        urls = [proxy.url for proxy in proxies]
        late = client(urls, **options(LONG))
        assert late.connect()
        eventually(lambda: all(master.listed for master in late.health()), "its list is in force")
        states = late.masters.connector.states
        for proxy in proxies[1:]:  # a partition between the client and these masters
            proxy.refusing = True
            proxy.cut()
        write_phase_1(masters, nodes, OLD, NEW)
        eventually(lambda: states[0].attached and states[0].seen.record.epoch == 2, "it reads phase 1 at 0")
        # The operator cannot reach master 0. A quorum of each list has the phases: {1, 2} and {2, 3, 4}.
        for terms in TO_NEW, AT_PHASE_2:
            write_terms(nodes[1:], **terms)
        second = client([masters.urls[n] for n in NEW], **options(LONG)).lock("r")
        masters[2].pause()  # so that the second holder has 3 and 4
        assert second.acquire(timeout=DEADLINE)
        masters[2].resume()

        engine = late.masters.engine

        class HeldUp:
            """The thread is not scheduled for a while between the start of the attempt and its requests."""

            def __getattr__(self, name: str) -> Any:
                return getattr(engine, name)

            def exchange(self, *arguments: Any) -> Any:
                if not begun.is_set():
                    begun.set()
                    assert go_on.wait(DEADLINE)
                return engine.exchange(*arguments)

        late.masters.engine = HeldUp()  # type: ignore[assignment]
        first = start(lambda: ATTEMPTS[attempt](late))
        assert begun.wait(DEADLINE)
        proxies[2].refusing = False
        eventually(lambda: states[2].attached, "2 is connected again")
        late.reconfigure([urls[2], *masters.urls[3:]], joint_with=urls, timeout=DEADLINE)
        proxies[1].refusing = False
        eventually(lambda: states[1].attached, "1 is connected again")
        proxies[2].hold()  # it answers later than the other two
        go_on.set()
        got = None
        with contextlib.suppress(QuorumUnavailable):
            got = first.result(DEADLINE)
        assert not (got and got.locked() and second.locked()), "two holders"
