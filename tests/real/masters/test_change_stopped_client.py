"""A client that was stopped during a phase of a change, and holds a lock when it continues.

Its mark on the masters has ended, so the operator went on. Its lease may be valid for up to ``max_ttl``. The
records of the masters forbid its list, so they must not extend the lease: the client would hold the lock
without end, and a client of the new list would get it too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.clients import Blocking, both_clients
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

pytestmark = [pytest.mark.usefixtures("all_masters"), both_clients]

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

#: The longest lease, where a test waits for its end, and where it must not end.
SHORT, LONG = 2.0, 60.0

LOCKS: dict[str, Callable[..., Any]] = {
    "plain": lambda client, **options: client.lock("r", **options),
    "fenced": lambda client, **options: client.lock("r", fencing=True, **options),
    "write": lambda client, **options: client.rwlock("r", **options).write(),
}
EXTENSIONS: dict[str, tuple[str, Callable[[Any, Any], object]]] = {
    "extend": ("plain", lambda client, lock: lock.extend()),
    "downgrade": ("write", lambda client, lock: lock.downgrade()),
}


def lock_of(kind: str, client: Any, **options: Any) -> Any:
    made = LOCKS[kind](client, **options)
    return client._result(made) if isinstance(client, Blocking) else made


@pytest.mark.parametrize("kind", LOCKS)
def test_a_lease_of_a_forbidden_list_is_not_renewed(
    masters: Masters, client: MakeClient, raw: Raw, kind: str
) -> None:
    nodes = raw(masters)
    lock = lock_of(kind, of_old_list(masters.urls[:3], client, SHORT), auto_extend=True)
    assert lock.acquire()
    write_phase_1(masters, nodes, OLD, NEW)
    write_terms(nodes, **TO_NEW)
    eventually(lambda: not lock.locked(), "the lease ends: the operator waits for twice as long")
    write_terms(nodes, **AT_PHASE_2)
    second = lock_of(kind, client([masters.urls[n] for n in NEW], **options(SHORT)))
    assert second.acquire(timeout=DEADLINE)
    assert not lock.locked(), "two holders"
    assert second.release()


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_a_master_that_forbids_the_list_does_not_count(
    masters: Masters, client: MakeClient, raw: Raw, extension: str
) -> None:
    """One master is down, one forbids the list, and one has not got the phase: no quorum extends."""
    nodes = raw(masters)
    late = of_old_list(masters.urls[:3], client, LONG)
    kind, extend = EXTENSIONS[extension]
    lock = lock_of(kind, late)
    assert lock.acquire()
    write_phase_1(masters, nodes, OLD, NEW)
    masters[0].kill()
    forbids = core_of(late).masters.connector.roster.masters[1]
    link, before = forbids.link, forbids.link.connections
    write_terms(nodes[1:2], **TO_NEW)
    eventually(
        lambda: forbids.record.listed is False and link.attached and link.connections > before,
        "one master forbids its list, and is connected again after the cut",
    )
    with pytest.raises(QuorumUnavailable, match="it expects clients that are joint"):
        extend(late, lock)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_an_attempt_by_a_forbidden_list_does_not_count_after_reconfigure(
    masters: Masters, client: MakeClient, raw: Raw, monkeypatch: pytest.MonkeyPatch, attempt: str
) -> None:
    """It began before the client read the records. The masters answer it when they allow the next list."""
    nodes = raw(masters)
    with contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(masters[n].port)) for n in OLD]
        urls = [proxy.url for proxy in proxies]
        late = of_old_list(urls, client, LONG)
        states = core_of(late).masters.connector.roster.masters
        connections = [state.link.connections for state in states]
        for proxy in proxies:
            proxy.refusing = True
            proxy.cut()
        write_phase_1(masters, nodes, OLD, NEW)
        for terms in TO_NEW, AT_PHASE_2:
            write_terms(nodes, **terms)
        second = client([masters.urls[n] for n in NEW], **options(LONG)).lock("r")
        assert second.acquire(timeout=DEADLINE)
        held_up = HeldUp(late, monkeypatch)
        first = start(lambda: ATTEMPTS[attempt](late))
        assert held_up.begun.wait(DEADLINE)
        for proxy in proxies:
            proxy.refusing = False
        eventually(
            lambda: all(
                state.link.attached and state.link.connections > before
                for state, before in zip(states, connections, strict=True)
            ),
            "it is connected again",
        )
        masters[0].pause()
        masters[1].pause()
        held_up.go_on.set()
        eventually(lambda: core_of(late).masters.engine.connection_state(0).pending, "the masters are asked")
        late.reconfigure([urls[2], *masters.urls[3:]], joint_with=urls, timeout=DEADLINE)
        masters[0].resume()
        masters[1].resume()
        with contextlib.suppress(QuorumUnavailable):
            assert first.result(DEADLINE) is None, "two holders"
        assert second.locked()
