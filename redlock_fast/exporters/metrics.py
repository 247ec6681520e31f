"""Which metrics there are, and what they are now: read from clients when somebody asks, never before.

So they cost nothing on the way of a lock. ``prometheus`` and ``otel`` bring them into the forms of those.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..errors import ConfigError
from ..locks.client_base import BaseClient
from ..masters.state import MasterHealth
from ..sharded.placement import Sharding
from .latency import Buckets, grants, time_grants

Client = BaseClient | Sharding[Any]


class Metric(NamedTuple):
    """``name``: without the prefix; ends with ``_seconds`` where it has a unit. ``kind``: "counter", "gauge"
    or "histogram". ``labels``: those besides ``client`` and ``group``.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


class Point(NamedTuple):
    """One number: ``labels`` are the values of ``client``, ``group`` and those of the metric, in order."""

    metric: str
    labels: tuple[str, ...]
    value: float


#: Those of every metric. ``group`` is empty but for sharded clients.
COMMON = ("client", "group")

METRICS = (
    Metric("acquires", "counter", ("outcome",), "Acquires that ended: acquired, contended or unavailable."),
    Metric("releases", "counter", ("outcome",), "Releases: released, or expired when the lease had ended."),
    Metric("extensions", "counter", ("outcome",), "Extensions that were extended or inconclusive."),
    Metric("renewals", "counter", (), "Of the extensions, those made in the background."),
    Metric("lost", "counter", (), "Locks that were lost while they were held."),
    Metric("held", "gauge", (), "Leases that are held now."),
    Metric("waiting", "gauge", (), "Callers that wait in line for a lock that others hold."),
    Metric("quorum", "gauge", (), "How many masters must agree."),
    Metric("master_up", "gauge", ("master",), "1: connected."),
    Metric("master_lagging", "gauge", ("master",), "1: replies are overdue, it is passed over meanwhile."),
    Metric("master_round_trip_seconds", "gauge", ("master",), "Smoothed round trip; 0 before the first."),
    Metric("master_owed", "gauge", ("master",), "Replies that are due."),
    Metric("master_guard_seconds", "gauge", ("master",), "For so long it casts no vote: restart guard."),
    Metric("master_connections", "counter", ("master",), "How often it was connected."),
    Metric("master_faults", "counter", ("master", "cause"), "Votes that were failures."),
    Metric("master_skipped", "counter", ("master", "reason"), "Votes without it: lagging, not connected."),
    Metric("master_replayed", "counter", ("master",), "Releases sent again, which were not done at first."),
    Metric("master_dropped", "counter", ("master",), "Releases that could not be kept for a reconnect."),
    Metric(
        "master_info",
        "gauge",
        ("master", "server", "version", "role", "persistence", "eviction", "release_path"),
        "1, with what is known of the server.",
    ),
    Metric(
        "grant_seconds", "histogram", (), "From the first byte to the quorum, of attempts that were granted."
    ),
)


class Clients:
    """The clients that are looked at. They are not kept: who is forgotten or closed is not told of again."""

    def __init__(self) -> None:
        # Without a mutex: a child of fork might wait for it for ever. Dicts are replaced, never changed.
        self._clients: dict[str, weakref.ref[Client]] = {}

    def add(self, client: Client, name: str = "default", *, latency: bool = False) -> None:
        """Look at ``client``, any of the four kinds, under ``name``: the label ``client``, not any master's.

        ``latency``: time its grants, too, for the histogram; docs/telemetry.md says what that costs.
        Raises ConfigError for a name that another client has.
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
        """Everything that is open, each with the values of COMMON."""
        for name, ref in self._clients.items():
            client = ref()
            if client is not None:
                for group, core in open_parts(client):
                    yield (name, group), core

    def points(self) -> Iterator[Point]:
        """Every counter and gauge, as it is now."""
        for common, core in self.parts():
            yield from counts(common, core)
            for master in core.health():
                yield from master_points((*common, master.name), master)

    def timings(self) -> Iterator[tuple[tuple[str, str], Buckets]]:
        """The histogram of each that has one."""
        for common, core in self.parts():
            buckets = grants(core)
            if buckets is not None:
                yield common, buckets


def open_parts(client: Client) -> list[tuple[str, BaseClient]]:
    """The clients of the groups with their names; a client itself has no group."""
    parts = client._clients if isinstance(client, Sharding) else {"": client}
    return [(group, core) for group, core in parts.items() if not core.masters.closed]


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
    yield Point("held", common, len(core.masters.held))
    yield Point("waiting", common, sum(map(len, list(core.policy.local_queue.waiting.values()))))
    yield Point("quorum", common, core.policy.need)


def master_points(labels: tuple[str, ...], master: MasterHealth) -> Iterator[Point]:
    yield Point("master_up", labels, master.state in ("connected", "lagging"))
    yield Point("master_lagging", labels, master.state == "lagging")
    yield Point("master_round_trip_seconds", labels, master.round_trip)
    yield Point("master_owed", labels, master.pending)
    yield Point("master_guard_seconds", labels, master.guard)
    yield Point("master_connections", labels, master.connections)
    yield Point("master_replayed", labels, master.resent)
    yield Point("master_dropped", labels, master.resend_dropped)
    for cause, count in master.causes.items():
        yield Point("master_faults", (*labels, cause), count)
    for reason, count in master.skipped.items():
        yield Point("master_skipped", (*labels, reason), count)
    server = (master.server, master.version, master.role, master.persistence, master.eviction)
    yield Point("master_info", (*labels, *server, master.release_path), 1)
