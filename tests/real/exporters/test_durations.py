"""Waiting and holding times with real masters, as Prometheus and OpenTelemetry export them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry
from support.clients import both_clients
from support.clocks import Jumping
from support.keys import forget
from support.waiting import start

from redlock_fast import Contended, LockLost, QuorumUnavailable, __version__
from redlock_fast.embedded import Masters
from redlock_fast.exporters.metrics import HISTOGRAMS
from redlock_fast.otel import RedlockMetrics
from redlock_fast.prometheus import RedlockCollector

MakeClient = Callable[..., Any]


def bare(client: Any) -> Any:
    return getattr(client, "target", client)


class Histograms:
    """The waiting and holding times of one client, as both libraries export them: they must agree."""

    def __init__(self, client: Any) -> None:
        self._registry = CollectorRegistry()
        self._reader = InMemoryMetricReader()
        RedlockCollector(self._registry).add(bare(client), "orders", latency=True, durations=True)
        self.metrics = RedlockMetrics(MeterProvider([self._reader]))
        self.metrics.add(bare(client), "orders", latency=True, durations=True)
        self.metrics.add(bare(client), "orders", latency=True, durations=True)  # does not count twice

    def scope(self) -> Any:
        (resource,) = self._reader.get_metrics_data().resource_metrics  # type: ignore[union-attr]
        (scope,) = resource.scope_metrics
        return scope

    def __call__(self, name: str, **labels: str) -> tuple[float, float]:
        """The count and the sum in seconds; each label that is left out is empty or any outcome."""
        point = self.point(name, **labels)
        every = {"client": "orders", "group": "", "label": "", **labels}
        if name == "grant":
            del every["label"]
        count, total = (
            self._registry.get_sample_value(f"redlock_fast_{name}_seconds_{part}", every)
            for part in ("count", "sum")
        )
        if point is None or count is None or total is None:
            assert point is count is total is None
            return 0, 0.0
        assert point.count == count
        assert point.sum == pytest.approx(total)
        return count, total

    def point(self, name: str, **labels: str) -> Any:
        wanted = {"client": "orders", **labels}
        (metric,) = [one for one in self.scope().metrics if one.name == f"redlock_fast.{name}"] or (None,)
        for point in metric.data.data_points if metric is not None else ():
            if dict(point.attributes) == wanted:
                return point
        return None


KINDS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda client: client.lock("a", label="checkout"),
    "fenced": lambda client: client.lock("b", fencing=True, label="checkout"),
    "fair": lambda client: client.lock("c", fair=True, label="checkout"),
    "read": lambda client: client.rwlock("d", label="checkout").read(),
    "write": lambda client: client.rwlock("e", label="checkout").write(),
    "semaphore": lambda client: client.semaphore("f", 2, label="checkout"),
    "multilock": lambda client: client.multilock(["g", "h"], label="checkout"),
}


@both_clients
def test_times_by_kind_and_label(valkey: Masters, connected: MakeClient, clock: Jumping) -> None:
    client = connected(valkey, clock=clock)
    seen = Histograms(client)
    run = getattr(client, "_loop", None)
    for kind, make in KINDS.items():
        lock = make(bare(client))

        def call(method: Any) -> Any:
            return run.call(method) if run else method()

        assert call(lock.acquire)
        clock.jump(2.0)
        assert call(lock.release)
        labels = {"kind": kind, "label": "checkout"}
        count, held = seen("hold_time", outcome="released", **labels)
        assert (count, held >= 2.0) == (1, True), kind
        count, waited = seen("wait_time", outcome="acquired", **labels)
        assert (count, waited < 2.0) == (1, True), kind
    assert seen("grant")[0] == len(KINDS)


@both_clients
def test_a_single_run_is_measured(valkey: Masters, connected: MakeClient, clock: Jumping) -> None:
    client = connected(valkey, clock=clock)
    seen = Histograms(client)
    with client.single_run("job"):
        clock.jump(2.0)
    assert seen("wait_time", kind="plain", outcome="acquired")[0] == 1
    count, held = seen("hold_time", kind="plain", outcome="released")
    assert (count, held >= 2.0) == (1, True)


@both_clients
def test_outcomes(valkey: Masters, connected: MakeClient, clock: Jumping) -> None:
    client = connected(valkey, clock=clock, ttl=30.0)
    seen = Histograms(client)
    plain = {"kind": "plain"}
    lock, other = client.lock("r"), client.lock("r", timeout=0.0)
    with lock:
        assert other.acquire(blocking=False) is False
        with pytest.raises(Contended), other:
            raise AssertionError("unreachable")
    assert seen("wait_time", outcome="contended", **plain)[0] == 2
    # A lease that ended: the hold lasted as long as the lease, not until the release.
    lock.acquire()
    forget(valkey)
    clock.jump(100.0)
    assert lock.release() is False
    assert lock.release() is False  # which is no second hold
    count, held = seen("hold_time", outcome="expired", **plain)
    assert count == 1
    assert 20.0 < held < 30.0
    # A lock that masters lost, found at the end of the body.
    with pytest.raises(LockLost), lock:
        forget(valkey)
    assert seen("hold_time", outcome="expired", **plain)[0] == 2
    # The waiting time of a caller that waits.
    lock.acquire()
    waiting = start(lambda: other.acquire(timeout=60.0))
    clock.jump(5.0)
    lock.release()
    assert waiting.result()
    other.release()
    assert seen("wait_time", outcome="acquired", **plain)[0] == 5
    for master in valkey:
        master.kill()
    with pytest.raises(QuorumUnavailable):
        other.acquire(timeout=0.1)
    assert seen("wait_time", outcome="unavailable", **plain)[0] == 1
    assert seen("hold_time", outcome="released", **plain)[0] == 3


def test_scope_units_and_buckets(valkey: Masters, connected: MakeClient) -> None:
    client = connected(valkey, label="reports")
    seen = Histograms(client)
    with client.lock("r") as lock:
        assert lock.label == "reports"
    assert (seen.scope().scope.name, seen.scope().scope.version) == ("redlock_fast", __version__)
    units = {metric.name: metric.unit for metric in seen.scope().metrics}
    assert (
        units["redlock_fast.wait_time"]
        == units["redlock_fast.hold_time"]
        == units["redlock_fast.grant"]
        == "s"
    )
    assert "" not in units.values()
    for name in ("wait_time", "hold_time"):
        labels = {"kind": "plain", "label": "reports"}
        point = seen.point(name, outcome="acquired" if name == "wait_time" else "released", **labels)
        assert point.explicit_bounds == HISTOGRAMS[f"{name}_seconds"].bounds
