"""Fair lock against a model: one holder, one queue. One master is dead, and replies of another get lost.

REDLOCK_FAST_SOAK_STEPS: so many times the steps.
"""

from __future__ import annotations

import contextlib
import os
import socket
from concurrent.futures import Future
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.makers import MakeClient, Raw
from support.models import failed
from support.proxy import Proxy
from support.thorough import amount
from support.waiting import DEADLINE, eventually, start

from redlock_fast import FastRedlock, Lock, QuorumUnavailable
from redlock_fast.embedded import Masters
from redlock_fast.locks import fair

TTL = 60.0
STEPS = amount(240, 400, twice=400) * int(os.environ.get("REDLOCK_FAST_SOAK_STEPS", "1"))
CALLERS = 5


class Model(RuleBasedStateMachine):
    """Callers have a client each. ``nodes``: the three masters that nothing happens to: a bare quorum."""

    clients: list[FastRedlock]
    nodes: list[redis.Redis]
    proxy: Proxy
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.holder: int | None = None
        self.lock: Lock | None = None
        self.queue: list[int] = []
        self.trying: dict[int, tuple[Lock, Future[bool]]] = {}
        if self.proxy.deaf:
            self.connections_break()  # each run begins alike

    def idle(self, caller: int) -> bool:
        return caller != self.holder and caller not in self.queue

    def in_queue(self) -> list[int]:
        """How many wait on each of the masters; a holder's place may still be there, too."""
        held = self.lock._lease if self.lock else None
        mine = held.lock_kind.entry_token if held and isinstance(held.lock_kind, fair.FairKind) else b""
        return [sum(one != mine for one in node.zrange("{r}:q", 0, -1)) for node in self.nodes]

    def settle(self) -> None:
        """The queue has the waiters of the model, in its order, and no others."""
        try:
            eventually(lambda: self.in_queue() == [len(self.queue)] * 3, f"{self.queue} wait")
        except AssertionError:
            seen = [(node.zrange("{r}:q", 0, -1, withscores=True), node.get("r")) for node in self.nodes]
            raise AssertionError(f"{self.queue} wait, {self.in_queue()} are seen: {seen}") from None

    # --- what callers do ---

    @rule(caller=st.integers(0, CALLERS - 1), fairly=st.booleans())
    def tries(self, caller: int, fairly: bool) -> None:
        if not self.idle(caller):
            return
        lock = self.clients[caller].lock("r", TTL, fair=fairly)
        assert lock.acquire(blocking=False) == (self.holder is None)
        if self.holder is None:
            self.holder, self.lock = caller, lock

    @rule(caller=st.integers(0, CALLERS - 1))
    def queues_up(self, caller: int) -> None:
        if not self.idle(caller):
            return
        lock = self.clients[caller].lock("r", TTL, fair=True)
        if self.holder is None:
            assert lock.acquire(timeout=DEADLINE)
            self.holder, self.lock = caller, lock
            return
        self.trying[caller] = lock, start(lambda: lock.acquire(timeout=3 * DEADLINE))
        self.queue.append(caller)
        self.settle()

    @rule(caller=st.integers(0, CALLERS - 1))
    def waits_in_vain(self, caller: int) -> None:
        if self.idle(caller) and self.holder is not None:
            with contextlib.suppress(QuorumUnavailable):  # a busy machine may not answer in that time
                assert not self.clients[caller].lock("r", TTL, fair=True).acquire(timeout=0.02)
            self.settle()

    @precondition(lambda self: self.lock is not None)
    @rule()
    def releases(self) -> None:
        assert self.lock is not None
        assert self.lock.release()
        self.holder = self.lock = None
        if self.queue:
            self.holder = self.queue.pop(0)
            self.lock, granted = self.trying.pop(self.holder)
            assert granted.result(DEADLINE)
            assert not any(future.done() for _, future in self.trying.values())

    @precondition(lambda self: self.lock is not None)
    @rule()
    def extends(self) -> None:
        assert self.lock is not None
        try:
            assert self.lock.extend(TTL) > 0
        except QuorumUnavailable as error:
            failed(error, self.proxy.deaf)  # and it was one of the three that granted
        assert self.lock.locked()

    # --- what happens to them ---

    @precondition(lambda self: not self.proxy.deaf)
    @rule()
    def replies_get_lost(self) -> None:
        self.proxy.deaf = True

    @precondition(lambda self: self.proxy.deaf)
    @rule()
    def connections_break(self) -> None:
        self.proxy.cut()

    # --- what always holds ---

    @invariant()
    def one_holder(self) -> None:
        type(self).steps += 1
        if self.lock is None:
            return
        self.lock.check()
        # The master behind the proxy may have been one of the three that decided.
        assert [node.get("r") for node in self.nodes].count(self.lock.token) >= 2
        assert not any(future.done() for _, future in self.trying.values())

    def teardown(self) -> None:
        while self.lock is not None:
            self.releases()
        eventually(lambda: sum(node.dbsize() for node in self.nodes) == 0, "nothing is left")


@pytest.fixture
def closed_port() -> Any:
    """A port without a server."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.usefixtures("all_masters")
def test_one_holder_and_one_queue(
    masters: Masters, client: MakeClient, raw: Raw, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair, "ENTRY_TTL", TTL)
    with Proxy(masters[4].port) as proxy:
        urls = [*masters.urls[:3], f"redis://127.0.0.1:{closed_port}", proxy.url]

        class Bound(Model):
            pass

        Bound.proxy, Bound.nodes = proxy, raw(masters)[:3]
        Bound.clients = [client(urls, connect_timeout=2.0) for _ in range(CALLERS)]
        for one in Bound.clients:
            one.connect()
            eventually(
                lambda one=one: [m.state for m in one.health()[:3]] == ["connected"] * 3,  # type: ignore[misc]
                "the quorum is connected",
            )
        checks = settings(
            max_examples=amount(5, 10, twice=10),
            stateful_step_count=50,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        while Bound.steps < STEPS // 2:  # on each kind of server
            run_state_machine_as_test(Bound, settings=checks)
