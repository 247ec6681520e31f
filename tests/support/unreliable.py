"""Five masters of which one is dead, and a network that loses replies; for stateful tests of locks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from support.inside import core_of
from support.proxy import Proxy
from support.thorough import amount
from support.waiting import DEADLINE, eventually

from redlock_fast import FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Masters

#: How many masters are alive; those after them are not.
ALIVE = 4
TTL = 60.0
#: A soak takes so many times as many steps.
SOAK = int(os.environ.get("REDLOCK_FAST_SOAK_STEPS", "1"))
#: Steps of one test, and of one example.
STEPS, LENGTH = amount(240, 400, twice=400) * SOAK, 50
#: Seconds that a test may take.
bounded = pytest.mark.timeout(300 * SOAK)

#: The master whose replies are lost during a step, and whether they come later or, which takes time, never.
Unheard = tuple[int, bool] | None
_LATE: list[Unheard] = [(master, False) for master in range(ALIVE)]
_NEVER: list[Unheard] = [(master, True) for master in range(ALIVE)]
UNHEARD = st.sampled_from([None] * 100 + 16 * _LATE + 3 * _NEVER)


class UnreliableMasters:
    """Clients over this network: ``clients``. ``nodes``: straight to each master that is alive."""

    def __init__(self, masters: Masters, engine: str, clients: int) -> None:
        self._stack = contextlib.ExitStack()
        masters[ALIVE].kill()
        self.proxies = [self._stack.enter_context(Proxy(master.port)) for master in list(masters)[:ALIVE]]
        self.nodes = [redis.Redis(unix_socket_path=m.socket_path) for m in list(masters)[:ALIVE]]
        urls = [*(proxy.url for proxy in self.proxies), masters.urls[ALIVE]]
        options: dict[str, Any] = {"engine": engine, "node_timeout": 1.0, "connect_timeout": DEADLINE}
        self.clients = [self._stack.enter_context(FastRedlock(urls, **options)) for _ in range(clients)]
        for node in self.nodes:
            self._stack.callback(node.close)
        self.steps = self.examples = 0
        self.settled()

    def settled(self) -> None:
        """All running masters are connected, and have executed everything: what is put back comes late."""
        for client in self.clients:
            client.connect()
        eventually(self._settled, "all masters that are alive are connected, and owe nothing")

    def _settled(self) -> bool:
        for client in self.clients:
            core_of(client).masters.engine.maintain()  # replies are read in the next exchange
        health = [one for client in self.clients for one in client.health()[:ALIVE]]
        return all(one.state == "connected" and not one.pending for one in health)

    @contextlib.contextmanager
    def recheck(self, which: Unheard) -> Iterator[None]:
        """This master gets all that is sent, and its replies are lost."""
        self.steps += 1
        if which is None:
            yield
            return
        master, never = which
        proxy, before = self.proxies[master], self._connections(master)
        proxy.hold(requests=False)
        try:
            yield
        finally:
            if never:
                proxy.cut()
            proxy.deliver()
            if never:
                for client in self.clients:
                    with contextlib.suppress(QuorumUnavailable):
                        client.locked("anything")  # an idle client notices later
                eventually(lambda: self._connections(master) > before, "they notice that it was cut")
                self.settled()

    def _connections(self, master: int) -> int:
        """The least of all clients'."""
        return min(client.health()[master].connections for client in self.clients)

    def delete(self, key: str, *masters: int) -> None:
        """By hand, as no user should."""
        for master in masters:
            self.nodes[master].delete(key)

    def gone(self, *keys: str) -> None:
        eventually(lambda: not any(node.exists(*keys) for node in self.nodes), f"nothing is left of {keys}")

    def close(self) -> None:
        self._stack.close()


class UnreliableModel(RuleBasedStateMachine):
    """A state machine over such a network. ``number``: of the example, for names of its own."""

    unreliable: UnreliableMasters

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.unreliable.examples += 1
        self.number = self.unreliable.examples


def check(model: type[UnreliableModel], masters: Masters, engine: str, clients: int = 2) -> None:
    """Whether locks do as the model says."""
    unreliable = UnreliableMasters(masters, engine, clients)
    try:
        run(unreliable, type("Run", (model,), {"unreliable": unreliable}))
    finally:
        unreliable.close()


def run(unreliable: UnreliableMasters, machine: Callable[[], RuleBasedStateMachine]) -> None:
    """Examples until there were STEPS steps.

    What comes of a step is up to the network, so nothing is replayed, and a machine must draw whatever is
    drawn without regard to that: a rule that cannot be does nothing.
    """
    while unreliable.steps < STEPS:
        plan = settings(
            max_examples=max(5, (STEPS - unreliable.steps) // LENGTH),
            stateful_step_count=LENGTH,
            phases=[Phase.generate],
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(machine, settings=plan)  # type: ignore[no-untyped-call]
