"""The metrics of clients: their names, and their values, which are read from a client on request.

So counters and gauges cost no time per lock. Only histograms are updated by locks: that of the grant times
for clients that were added with ``latency=True``, those of waiting and holding times with
``durations=True``. ``prometheus`` and ``otel`` export the metrics.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import Any, Literal, NamedTuple

from ..algorithm.lease import Lease
from ..algorithm.quorum import EXPIRY_GRANULARITY
from ..errors import ConfigError
from ..locks.client_base import BaseClient
from ..locks.config import check_flag
from ..masters.health import MasterHealth
from ..sharded.placement import Sharding
from ..telemetry import EventLog
from .durations import Add, Durations
from .instrument import instrument, log_unmeasured

Client = BaseClient | Sharding[Any]


class Metric(NamedTuple):
    """The description of one metric.

    ``name``: without the prefix; ends with ``_seconds`` if that is its unit. ``kind``: "counter", "gauge" or
    "histogram". ``labels``: besides ``client`` and ``group``. ``merge``: the value of several processes of
    one service. ``unit``: as OpenTelemetry writes it. ``bounds``: the upper bounds of a histogram's buckets
    in seconds; the last bucket has none.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    unit: str
    merge: Literal["sum", "min", "max"] = "sum"
    bounds: tuple[float, ...] = ()


class Point(NamedTuple):
    """One value of a metric. ``labels``: the values of COMMON, then those of the metric's labels."""

    metric: str
    labels: tuple[str, ...]
    value: float


#: The labels of every metric. ``group`` is empty except for sharded clients.
COMMON = ("client", "group")

_STEPS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: From a grant on the same machine to a slow one.
GRANT_BOUNDS = (0.0001, 0.00025, *_STEPS)
#: From a lock without contention to a queue of minutes.
WAIT_BOUNDS = (0.00025, *_STEPS, 30.0, 120.0)
#: From a few instructions to the longest hold that renewal allows by default, an hour.
HOLD_BOUNDS = (*_STEPS, 30.0, 120.0, 600.0, 3600.0)


def _counter(name: str, help: str, unit: str, *labels: str) -> Metric:
    return Metric(name, "counter", labels, help, unit)


def _gauge(name: str, help: str, unit: str, merge: Literal["sum", "min", "max"], *labels: str) -> Metric:
    return Metric(name, "gauge", labels, help, unit, merge)


def _histogram(name: str, help: str, bounds: tuple[float, ...], *labels: str) -> Metric:
    return Metric(name, "histogram", labels, help, "s", bounds=bounds)


#: What describes the server of a master.
_INFO = ("server", "version", "role", "persistence", "eviction", "release_path")
#: What waiting times and holding times are sorted by.
_SORTS = ("kind", "label", "outcome")

METRICS = (
    _counter("acquires", "Acquires that ended: acquired, contended or unavailable.", "{acquire}", "outcome"),
    _counter("releases", "Releases: released, or expired when the lease had ended.", "{release}", "outcome"),
    _counter("extensions", "Extensions that were extended or inconclusive.", "{extension}", "outcome"),
    _counter("renewals", "Extensions that were made in the background.", "{extension}"),
    _counter("lost", "Locks that were lost while they were held.", "{lock}"),
    _gauge("held", "Leases that are held now.", "{lock}", "sum"),
    _gauge("waiting", "Callers in the local queue of a lock.", "{caller}", "sum"),
    _gauge("quorum", "How many masters must agree.", "{master}", "max"),
    _gauge("master_up", "1: connected.", "1", "min", "master"),
    _gauge("master_votes", "1: its votes count.", "1", "min", "master"),
    _gauge("master_no_vote", "1: its votes do not count, for this reason.", "1", "max", "master", "reason"),
    _gauge("master_lagging", "1: replies are overdue, so it is skipped.", "1", "max", "master"),
    _gauge("master_round_trip_seconds", "Smoothed round trip; 0 before the first.", "s", "max", "master"),
    _gauge("master_pending", "Replies that the master owes.", "{reply}", "sum", "master"),
    _gauge("master_guard_seconds", "Seconds of the restart guard without its vote.", "s", "max", "master"),
    _counter("master_connections", "How often it was connected.", "{connection}", "master"),
    _counter("master_faults", "Votes that were failures.", "{vote}", "master", "cause"),
    _counter("master_skipped", "Votes without it: lagging, not connected.", "{vote}", "master", "reason"),
    _counter("master_resent", "Releases that were sent again.", "{release}", "master"),
    _counter(
        "master_resend_dropped", "Releases that did not fit into the resend queue.", "{release}", "master"
    ),
    _gauge("master_info", "1; the labels describe the server.", "1", "max", "master", *_INFO),
    _histogram(
        "grant_seconds", "From the first byte to the quorum, of attempts that were granted.", GRANT_BOUNDS
    ),
    _histogram(
        "wait_time_seconds", "From the call of an acquire to the grant or the failure.", WAIT_BOUNDS, *_SORTS
    ),
    _histogram(
        "hold_time_seconds",
        "From the grant to the release, or to the end of the lease.",
        HOLD_BOUNDS,
        *_SORTS,
    ),
)
HISTOGRAMS: dict[str, Metric] = {metric.name: metric for metric in METRICS if metric.kind == "histogram"}
GAUGES: set[str] = {metric.name for metric in METRICS if metric.kind == "gauge"}


class Buckets:
    """A histogram that needs no mutex, which a child of fork might find locked. ``total``: in seconds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds: tuple[float, ...] = bounds
        self.counts: list[int] = [0] * (len(bounds) + 1)
        self.total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds


class GrantTimes:
    """Adds the time of each grant of one client to a histogram, with ``add_seconds``.

    A lease has the time in it: what is missing of the lease when it is granted. So no clock is read, and the
    same code serves all kinds of locks. An error of the histogram is logged: it must not undo the grant.
    """

    __slots__ = ("_add_seconds", "_events", "_left")

    def __init__(self, drift_factor: float, add_seconds: Add, events: EventLog) -> None:
        self._left = 1.0 - drift_factor  # the share of a ttl that remains after the drift
        self._add_seconds = add_seconds
        self._events = events

    def add(self, lease: Lease) -> None:
        try:
            # Inline, because every grant runs it: ttl - drift(ttl, factor) - validity.
            self._add_seconds(lease.ttl * self._left - EXPIRY_GRANULARITY - lease.validity)
        except Exception as error:
            log_unmeasured(self._events, error)


class Clients:
    """The clients whose metrics are exported. References are weak; a closed client is not exported."""

    def __init__(self) -> None:
        # Without a mutex, which a child of fork might find locked. Dicts are replaced, never changed.
        self._clients: dict[str, weakref.ref[Client]] = {}
        self._measured: set[tuple[str, str]] = set()  # the clients by name, and what is measured

    def add(
        self, client: Client, name: str = "default", *, latency: bool = False, durations: bool = False
    ) -> None:
        """Export the metrics of ``client``, with ``name`` as the label ``client``.

        ``client``: a client of any of the four classes. ``latency``: also measure the time of its grants.
        ``durations``: also measure how long its locks are waited for and held, by kind and label, for the
        locks that it makes from now on. docs/telemetry.md has the cost of both. Another call with the same
        name may only measure more. Raises ConfigError for an object that is no client, for a name that
        another client has, and for a client that has another name; ClientClosed for a closed client.
        """
        check_client(client)
        measured = {
            "latency": check_flag("latency", latency),
            "durations": check_flag("durations", durations),
        }
        if not isinstance(name, str) or not name:
            raise ConfigError(f"name must be a str and not empty, not {name!r}")
        alive = {other: ref for other, ref in self._clients.items() if (one := ref()) and open_parts(one)}
        if name in alive and alive[name]() is not client:
            raise ConfigError(f"name: another client is {name!r}; give each client a name of its own")
        named = next((other for other, ref in alive.items() if ref() is client), name)
        if named != name:
            raise ConfigError(
                f"name: this client is {named!r} already, so {name!r} would count its locks twice"
            )
        self._measured = {(other, what) for other, what in self._measured if other in alive}
        self._forget(alive)
        self._clients = {**alive, name: weakref.ref(client)}
        for what, wanted in measured.items():
            if wanted and (name, what) not in self._measured:
                self._measured.add((name, what))
                for group, part in open_parts(client):
                    self._measure(what, part, (name, group))

    def _measure(self, what: str, client: BaseClient, common: tuple[str, str]) -> None:
        def histogram(metric: str, labels: tuple[str, ...]) -> Add:
            return self._histogram(HISTOGRAMS[metric], (*common, *labels))

        if what == "durations":
            instrument(client, Durations(histogram))
        else:
            observer = client._core.observe()
            events = client._core.client_state.events
            times = GrantTimes(client._core.drift_factor, histogram("grant_seconds", ()), events)
            observer.grants = (*observer.grants, times)

    def _histogram(self, metric: Metric, labels: tuple[str, ...]) -> Add:
        """A function that adds seconds to the histogram of ``metric`` with the values ``labels``."""
        raise NotImplementedError

    def _forget(self, alive: Collection[str]) -> None:
        """Drop the histograms of all clients that are not ``alive``."""

    def parts(self, *, closed: bool = False) -> Iterator[tuple[tuple[str, str], BaseClient]]:
        """The open clients, and with ``closed`` all, each with the values of COMMON."""
        for name, ref in self._clients.items():
            client = ref()
            if client is not None:
                for group, part in all_parts(client) if closed else open_parts(client):
                    yield (name, group), part

    def points(self, *, closed: bool = False) -> Iterator[Point]:
        """The present value of every counter and gauge; ``closed``: also what closed clients have counted."""
        for common, part in self.parts(closed=closed):
            if part._core.client_state.closed:
                yield from (point for point in counts(common, part) if point.metric not in GAUGES)
                continue
            yield from counts(common, part)
            health = part.health()
            # Not before each master was tried: a client that connects is no outage.
            tried = all(master.state != "connecting" for master in health)
            for master in health:
                labels = (*common, master.name)
                yield from master_points(labels, master)
                if tried:
                    yield from votes(labels, master.no_vote_reason)


def check_client(client: Any) -> None:
    """Raise ConfigError for an object that is no client, and ClientClosed for a closed client."""
    if not isinstance(client, (BaseClient, Sharding)):
        what = "FastRedlock, AsyncFastRedlock, ShardedRedlock or AsyncShardedRedlock"
        raise ConfigError(f"client must be a {what}, not {type(client).__name__}")
    for _, part in all_parts(client):
        part._core.masters.check_not_closed()


def all_parts(client: Client) -> list[tuple[str, BaseClient]]:
    """The clients of ``client`` with the names of their groups; "" if ``client`` is not sharded."""
    return list((client._clients if isinstance(client, Sharding) else {"": client}).items())


def open_parts(client: Client) -> list[tuple[str, BaseClient]]:
    return [(group, part) for group, part in all_parts(client) if not part._core.client_state.closed]


def counts(common: tuple[str, str], client: BaseClient) -> Iterator[Point]:
    stats = client.stats()
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
    yield Point("held", common, len(client._core.client_state.held))
    yield Point("waiting", common, sum(map(len, list(client._core.policy.local_queue.waiting.values()))))
    yield Point("quorum", common, client._core.policy.voters.lists.least)


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


def votes(labels: tuple[str, ...], no_vote_reason: str) -> Iterator[Point]:
    yield Point("master_votes", labels, not no_vote_reason)
    if no_vote_reason:
        yield Point("master_no_vote", (*labels, no_vote_reason), 1)
