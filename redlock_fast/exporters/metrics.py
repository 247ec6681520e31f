"""The metrics of clients: their names, and their values, which are read from a client on request.

So counters and gauges cost no time per lock. Only the histogram of grant times is updated at each grant, for
clients that were added with ``latency=True``. ``prometheus`` and ``otel`` export the metrics.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..algorithm.lease import Lease
from ..algorithm.quorum import EXPIRY_GRANULARITY
from ..errors import ConfigError
from ..locks.client_base import BaseClient
from ..masters.health import MasterHealth
from ..sharded.placement import Sharding

Client = BaseClient | Sharding[Any]


class Metric(NamedTuple):
    """The description of one metric.

    ``name``: without the prefix; ends with ``_seconds`` if that is its unit. ``kind``: "counter", "gauge" or
    "histogram". ``labels``: besides ``client`` and ``group``.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


class Point(NamedTuple):
    """One value of a metric. ``labels``: the values of COMMON, then those of the metric's labels."""

    metric: str
    labels: tuple[str, ...]
    value: float


#: The labels of every metric. ``group`` is empty except for sharded clients.
COMMON = ("client", "group")

METRICS = (
    Metric("acquires", "counter", ("outcome",), "Acquires that ended: acquired, contended or unavailable."),
    Metric("releases", "counter", ("outcome",), "Releases: released, or expired when the lease had ended."),
    Metric("extensions", "counter", ("outcome",), "Extensions that were extended or inconclusive."),
    Metric("renewals", "counter", (), "Extensions that were made in the background."),
    Metric("lost", "counter", (), "Locks that were lost while they were held."),
    Metric("held", "gauge", (), "Leases that are held now."),
    Metric("waiting", "gauge", (), "Callers in the local queue of a lock."),
    Metric("quorum", "gauge", (), "How many masters must agree."),
    Metric("master_up", "gauge", ("master",), "1: connected."),
    Metric("master_lagging", "gauge", ("master",), "1: replies are overdue, so it is skipped."),
    Metric("master_round_trip_seconds", "gauge", ("master",), "Smoothed round trip; 0 before the first."),
    Metric("master_pending", "gauge", ("master",), "Replies that the master owes."),
    Metric("master_guard_seconds", "gauge", ("master",), "Seconds of the restart guard without its vote."),
    Metric("master_connections", "counter", ("master",), "How often it was connected."),
    Metric("master_faults", "counter", ("master", "cause"), "Votes that were failures."),
    Metric("master_skipped", "counter", ("master", "reason"), "Votes without it: lagging, not connected."),
    Metric("master_resent", "counter", ("master",), "Releases that were sent again."),
    Metric(
        "master_resend_dropped",
        "counter",
        ("master",),
        "Releases that did not fit into the resend queue.",
    ),
    Metric(
        "master_info",
        "gauge",
        ("master", "server", "version", "role", "persistence", "eviction", "release_path"),
        "1; the labels describe the server.",
    ),
    Metric(
        "grant_seconds", "histogram", (), "From the first byte to the quorum, of attempts that were granted."
    ),
)


#: Upper bounds of the histogram's buckets, in seconds; the last bucket has none.
BOUNDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


class Buckets:
    """The histogram of the grant times of one client.

    A lease has the time in it: what is missing of the lease when it is granted. So no clock is read, and the
    same code serves all kinds of locks. ``total``: the sum in seconds. ``left``: the share of a ttl that
    remains after the drift.
    """

    __slots__ = ("counts", "left", "total")

    def __init__(self, left: float) -> None:
        self.counts: list[int] = [0] * (len(BOUNDS) + 1)
        self.total: float = 0.0
        self.left: float = left

    def add(self, lease: Lease) -> None:
        # Inline, because every grant runs it: ttl - drift(ttl, factor) - validity.
        seconds = lease.ttl * self.left - EXPIRY_GRANULARITY - lease.validity
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Clients:
    """The clients whose metrics are exported. References are weak; a closed client is not exported."""

    def __init__(self) -> None:
        # Without a mutex, which a child of fork might find locked. Dicts are replaced, never changed.
        self._clients: dict[str, weakref.ref[Client]] = {}

    def add(self, client: Client, name: str = "default", *, latency: bool = False) -> None:
        """Export the metrics of ``client``, with ``name`` as the label ``client``.

        ``client``: a client of any of the four classes. ``latency``: also measure the time of its grants for
        the histogram; docs/telemetry.md has the cost. Raises ConfigError for a name that another client has.
        """
        if not isinstance(name, str) or not name:
            raise ConfigError(f"name must be a str and not empty, not {name!r}")
        alive = {other: ref for other, ref in self._clients.items() if (one := ref()) and open_parts(one)}
        if name in alive and alive[name]() is not client:
            raise ConfigError(f"name: another client is {name!r}; give each client a name of its own")
        if latency:
            for _, core in open_parts(client):
                time_grants(core)
        self._clients = {**alive, name: weakref.ref(client)}

    def parts(self) -> Iterator[tuple[tuple[str, str], BaseClient]]:
        """The open clients, each with the values of COMMON."""
        for name, ref in self._clients.items():
            client = ref()
            if client is not None:
                for group, core in open_parts(client):
                    yield (name, group), core

    def points(self) -> Iterator[Point]:
        """The present value of every counter and gauge."""
        for common, core in self.parts():
            yield from counts(common, core)
            for master in core.health():
                yield from master_points((*common, master.name), master)

    def timings(self) -> Iterator[tuple[tuple[str, str], Buckets]]:
        """The histograms of the clients that have one."""
        for common, core in self.parts():
            observer = core.client_state.observer
            if observer is not None and isinstance(observer.grants, Buckets):
                yield common, observer.grants


def time_grants(core: BaseClient) -> None:
    """Measure the time of grants from now on. A second call has no effect."""
    observer = core.observe()
    if observer.grants is None:
        observer.grants = Buckets(1.0 - core.drift_factor)


def open_parts(client: Client) -> list[tuple[str, BaseClient]]:
    """The open clients of ``client`` with the names of their groups; "" if ``client`` is not sharded."""
    parts = client._clients if isinstance(client, Sharding) else {"": client}
    return [(group, core) for group, core in parts.items() if not core.client_state.closed]


def counts(common: tuple[str, str], core: BaseClient) -> Iterator[Point]:
    stats = core.stats()
    outcomes = {
        "acquires": ("acquired", "contended", "unavailable"),
        "releases": ("released", "expired"),
        "extensions": ("extended", "inconclusive"),
    }
    for metric, names in outcomes.items():
        for outcome in names:
            yield Point(metric, (*common, outcome), getattr(stats, outcome))
    yield Point("renewals", common, stats.renewed)
    yield Point("lost", common, stats.lost)
    yield Point("held", common, len(core.client_state.held))
    yield Point("waiting", common, sum(map(len, list(core.policy.local_queue.waiting.values()))))
    yield Point("quorum", common, core.policy.need)


def master_points(labels: tuple[str, ...], master: MasterHealth) -> Iterator[Point]:
    yield Point("master_up", labels, master.state in ("connected", "lagging"))
    yield Point("master_lagging", labels, master.state == "lagging")
    yield Point("master_round_trip_seconds", labels, master.round_trip)
    yield Point("master_pending", labels, master.pending)
    yield Point("master_guard_seconds", labels, master.guard)
    yield Point("master_connections", labels, master.connections)
    yield Point("master_resent", labels, master.resent)
    yield Point("master_resend_dropped", labels, master.resend_dropped)
    for cause, count in master.causes.items():
        yield Point("master_faults", (*labels, cause), count)
    for reason, count in master.skipped.items():
        yield Point("master_skipped", (*labels, reason), count)
    server = (master.server, master.version, master.role, master.persistence, master.eviction)
    yield Point("master_info", (*labels, *server, master.release_path), 1)
