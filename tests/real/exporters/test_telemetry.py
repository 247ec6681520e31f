"""Metrics and spans with real masters: each moves when it should, and none breaks a client."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any

import pytest
import redis
from prometheus_client import CollectorRegistry, generate_latest
from support.event_loops import Plain
from support.forking import exit_code, fork_child, needs_fork
from support.inside import core_of
from support.interruptions import interrupted
from support.keys import wipe
from support.thorough import amount
from support.waiting import DEADLINE, eventually, start

from redlock_fast import ConfigError, FastRedlock, LockLost, QuorumUnavailable, ShardedRedlock, __version__
from redlock_fast.embedded import Masters
from redlock_fast.exporters.instrument import instrument
from redlock_fast.exporters.metrics import Clients, Metric
from redlock_fast.prometheus import RedlockCollector

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

TTL = 60.0


class Page:
    """What a scrape shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.collector = RedlockCollector(self.registry)

    def __call__(self, name: str, client: str = "default", group: str = "", **labels: str) -> float | None:
        every = {"client": client, "group": group, **labels}
        return self.registry.get_sample_value(f"redlock_fast_{name}", every)

    def text(self) -> str:
        return generate_latest(self.registry).decode()


@pytest.fixture
def page() -> Page:
    return Page()


def test_outcomes_are_counted(page: Page, valkey: Masters, plain: Callable[..., Plain]) -> None:
    client = plain(valkey, ttl=TTL / 2).at_full_strength()
    page.collector.add(client.client, latency=True)
    lock, other = client.client.lock("r"), client.client.lock("r")
    assert client.wait(lock.acquire()) is True
    assert page("held") == 1
    assert client.wait(other.acquire(blocking=False)) is False
    assert client.wait(lock.extend(TTL)) > 0
    assert client.wait(lock.release()) is True
    assert client.wait(lock.acquire()) is True
    for master in valkey:
        wipe(master)
    assert client.wait(lock.release()) is False
    for outcome, count in {"acquired": 2, "contended": 1, "unavailable": 0}.items():
        assert page("acquires_total", outcome=outcome) == count
    assert page("releases_total", outcome="released") == 1
    assert page("releases_total", outcome="expired") == 1
    assert page("extensions_total", outcome="extended") == 1
    assert page("held") == 0
    assert page("quorum") == 3
    assert page("grant_seconds_count") == 2
    total = page("grant_seconds_sum")
    assert total is not None
    assert 0 < total < 2 * DEADLINE


def test_batches_are_timed_and_counted(page: Page, valkey: Masters, plain: Callable[..., Plain]) -> None:
    client = plain(valkey).at_full_strength()
    page.collector.add(client.client, latency=True)
    locks = client.acquire_many([f"b{number}" for number in range(7)])
    assert page("grant_seconds_count") == page("acquires_total", outcome="acquired") == page("held") == 7
    client.release_many(locks)
    assert page("releases_total", outcome="released") == 7
    assert page("held") == 0


@pytest.mark.parametrize("timeout", [None, TTL])
def test_a_lock_of_a_batch_is_measured(
    valkey: Masters, plain: Callable[..., Plain], timeout: float | None
) -> None:
    """With and without options of the client, which make the locks of a batch in two ways."""
    client = plain(valkey, timeout=timeout).at_full_strength()
    recorder = Collects()
    instrument(client.client, recorder)
    (lock,) = client.acquire_many(["r"])
    assert client.wait(lock.extend()) > 0
    assert client.wait(lock.release())
    assert recorder.outcomes == [("extend", "extended"), ("release", "released")]


def test_losses_and_renewals_are_counted(page: Page, valkey: Masters, plain: Callable[..., Plain]) -> None:
    client = plain(valkey).at_full_strength()
    page.collector.add(client.client)
    lock = client.client.lock("r", ttl=4.0, auto_extend=True)
    assert client.wait(lock.acquire()) is True

    def passes() -> None:
        client.wait(asyncio.sleep(0.01) if client._runner else None)  # its loop has to run

    def renewed() -> bool:
        passes()
        return bool(page("renewals_total"))

    eventually(renewed, "it is renewed")
    for master in valkey:
        wipe(master)

    def lost() -> bool:
        passes()
        return page("lost_total") == 1

    eventually(lost, "its loss is counted")
    assert page("extensions_total", outcome="extended") == page("renewals_total")


def test_masters_that_are_down(page: Page, valkey: Masters, connected: MakeClient) -> None:
    client = connected(valkey, ttl=TTL)
    page.collector.add(client)
    names = core_of(client).masters.connector.roster.names()
    lock = client.lock("r")
    assert lock.acquire()
    assert [page("master_up", master=name) for name in names] == [1] * 5
    for master in valkey:
        master.kill()
    eventually(lambda: not any(page("master_up", master=name) for name in names), "all are down")
    with pytest.raises(QuorumUnavailable):
        lock.extend()
    with pytest.raises(QuorumUnavailable):
        client.lock("other").acquire(timeout=0.1)
    assert page("acquires_total", outcome="unavailable") == 1
    assert page("extensions_total", outcome="inconclusive") == 1
    skipped = [page("master_skipped_total", master=name, reason="not connected") for name in names]
    assert all(skipped)
    lock.release()
    for master in valkey:
        master.restart()
    eventually(lambda: all(page("master_connections_total", master=n) == 2 for n in names), "all are back")
    eventually(lambda: all(page("master_resent_total", master=n) == 1 for n in names), "they are reported")
    guards = [page("master_guard_seconds", master=name) for name in names]
    assert all(guards), "they may have forgotten"


def test_masters_that_are_connected_and_have_no_vote(
    page: Page, valkey: Masters, connected: MakeClient
) -> None:
    """Catches: nothing but connections is counted, and a total outage looks like full strength."""
    client = connected(valkey)
    page.collector.add(client)
    names = core_of(client).masters.connector.roster.names()
    assert [page("master_votes", master=name) for name in names] == [1] * 5
    for master in list(valkey)[:3]:
        master.restart()
    eventually(lambda: all(page("master_connections_total", master=n) == 2 for n in names[:3]), "connected")
    assert [page("master_up", master=name) for name in names] == [1] * 5
    assert [page("master_votes", master=name) for name in names] == [0] * 3 + [1] * 2
    assert [page("master_no_vote", master=name, reason="guard") for name in names[:3]] == [1] * 3
    valkey[4].kill()
    eventually(lambda: page("master_votes", master=names[4]) == 0, "it is down")
    assert page("master_no_vote", master=names[4], reason="down") == 1


def test_a_client_that_starts_is_no_outage(page: Page, valkey: Masters) -> None:
    """Catches: an alert for each process that is started, or was never used."""
    with FastRedlock(valkey.urls) as client:
        page.collector.add(client)
        name = core_of(client).masters.connector.roster.names()[0]
        assert (page("quorum"), page("master_votes", master=name)) == (3, None)
        client.connect()
        eventually(lambda: page("master_votes", master=name) == 1, "each master was tried")


def test_master_that_lags(page: Page, valkey: Masters, connected: MakeClient) -> None:
    client = connected(valkey, socket_timeout=600.0)
    page.collector.add(client)
    name = core_of(client).masters.connector.roster.names()[1]
    valkey[1].pause()

    def lags() -> bool:
        with client.lock("r"):
            return page("master_lagging", master=name) == 1

    eventually(lags, "it lags")

    def skipped() -> bool:
        with client.lock("r"):
            return bool(page("master_skipped_total", master=name, reason="lagging"))

    eventually(skipped, "it is not asked, unless so many others lag that all are")
    assert page("master_pending", master=name)
    assert page("master_up", master=name) == 1
    valkey[1].resume()
    eventually(lambda: page("master_lagging", master=name) == 0, "it has answered")
    assert page("master_round_trip_seconds", master=name)


def test_faults_by_cause(page: Page, valkey: Masters, connected: MakeClient, raw: Raw) -> None:
    client, nodes = connected(valkey), raw(valkey)
    page.collector.add(client)
    names = core_of(client).masters.connector.roster.names()
    nodes[0].config_set("maxmemory", "1")
    nodes[2].acl_setuser("default", enabled=True, nopass=True, commands=["+@all", "-set"], keys=["*"])
    try:

        def both() -> bool:
            with client.lock("r"):
                oom = page("master_faults_total", master=names[0], cause="OOM")
                return bool(oom and page("master_faults_total", master=names[2], cause="NOPERM"))

        eventually(both, "both are counted")
    finally:
        nodes[0].config_set("maxmemory", "0")
        nodes[2].acl_setuser("default", enabled=True, nopass=True, commands=["+@all"], keys=["*"])
    health = client.health()
    assert [sum(master.causes.values()) for master in health] == [master.faults for master in health]
    assert set(health[0].causes) == {"OOM"}


def test_callers_that_wait(page: Page, valkey: Masters, connected: MakeClient) -> None:
    holder, client = connected(valkey, ttl=TTL), connected(valkey, ttl=TTL)
    page.collector.add(client)
    held = holder.lock("r")
    assert held.acquire()
    locks = [client.lock("r") for _ in range(3)]

    def turn(lock: Any) -> None:
        with lock:
            pass

    waiting = [start(lambda lock=lock: turn(lock)) for lock in locks]  # type: ignore[misc]
    eventually(lambda: page("waiting") == 3, "they wait")
    held.release()
    assert not wait(waiting, DEADLINE).not_done
    assert page("waiting") == 0


def test_closed_and_forgotten_clients_are_gone(page: Page, valkey: Masters, client: MakeClient) -> None:
    one = client(valkey)
    page.collector.add(one, "one", latency=True)
    forgotten = FastRedlock(valkey.urls)
    page.collector.add(forgotten, "two")
    assert page("quorum", client="one") == page("quorum", client="two") == 3
    one.close()
    assert page("quorum", client="one") is None
    del forgotten
    gc.collect()
    assert 'client="' not in page.text()
    page.collector.add(client(valkey), "one")  # the name is free again
    assert page("quorum", client="one") == 3


def test_groups_have_a_label(page: Page, valkey: Masters, engine_name: str) -> None:
    groups = {"a": valkey.urls[:3], "b": valkey.urls[3:]}
    with ShardedRedlock(groups, engine=engine_name, node_timeout=5.0, connect_timeout=DEADLINE) as client:
        page.collector.add(client, "orders", latency=True)
        for number in range(20):
            with client.lock(f"r{number}"):
                pass
        counts = [page("acquires_total", "orders", group, outcome="acquired") for group in "ab"]
        assert sum(count or 0 for count in counts) == 20
        assert counts == [page("grant_seconds_count", "orders", group) for group in "ab"]
        assert [page("quorum", "orders", group) for group in "ab"] == [2, 2]
    assert 'client="orders"' not in page.text()


def test_scrapes_while_threads_work(page: Page, valkey: Masters, connected: MakeClient) -> None:
    turns = amount(25, 100, twice=100)
    client = connected(valkey)
    page.collector.add(client, latency=True)

    def work(number: int) -> None:
        for _ in range(turns):
            with client.lock(f"r{number}"):
                pass

    working = [start(lambda number=number: work(number)) for number in range(4)]  # type: ignore[misc]
    seen = 0.0
    while not all(one.done() for one in working):
        count = page("acquires_total", outcome="acquired") or 0.0
        assert seen <= count
        seen = count
    for one in working:
        one.result()
    assert page("acquires_total", outcome="acquired") == page("grant_seconds_count") == 4 * turns
    lines = page.text().splitlines()
    buckets = [line for line in lines if line.startswith("redlock_fast_grant_seconds_bucket")]
    values = [float(line.rpartition(" ")[2]) for line in buckets]
    assert values == sorted(values)
    assert values[-1] == 4 * turns


@needs_fork
def test_child_of_fork_is_scraped_too(page: Page, valkey: Masters, connected: MakeClient) -> None:
    client = connected(valkey, ttl=TTL)
    page.collector.add(client, latency=True)
    held = client.lock("held")
    assert held.acquire()

    def child() -> None:
        assert page("held") == 0, "that is its parent's"
        before = page("grant_seconds_count") or 0.0
        with client.lock("r"):
            assert page("held") == 1
        assert page("grant_seconds_count") == before + 1

    assert exit_code(fork_child(child)) == 0
    assert page("held") == 1
    assert held.release()


# --- OpenTelemetry --------------------------------------------------------------------------------


@pytest.fixture
def collected() -> Iterator[tuple[Any, Callable[[], dict[str, Any]]]]:
    """RedlockMetrics, and what a reader collects: by name, values by attributes."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from redlock_fast.otel import RedlockMetrics

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])

    def collect() -> dict[str, Any]:
        data = reader.get_metrics_data()
        scopes = [scope for one in data.resource_metrics for scope in one.scope_metrics] if data else []
        return {
            metric.name: {
                tuple(sorted((point.attributes or {}).items())): getattr(point, "value", point)
                for point in metric.data.data_points
            }
            for scope in scopes
            for metric in scope.metrics
        }

    yield RedlockMetrics(provider), collect
    provider.shutdown()


def test_opentelemetry_tells_the_same(
    page: Page,
    collected: tuple[Any, Callable[[], dict[str, Any]]],
    valkey: Masters,
    plain: Callable[..., Plain],
) -> None:
    metrics, collect = collected
    client = plain(valkey).at_full_strength()
    metrics.add(client.client, "orders", latency=True)
    page.collector.add(client.client, "orders", latency=True)
    lock = client.client.lock("r")
    client.wait(lock.acquire())
    client.wait(lock.release())
    found = collect()
    assert found["redlock_fast.acquires"][(("client", "orders"), ("outcome", "acquired"))] == 1
    assert found["redlock_fast.grant"][(("client", "orders"),)].count == 1
    name = core_of(client.client).masters.connector.roster.names()[0]
    up = found["redlock_fast.master_up"][(("client", "orders"), ("master", name))]
    assert up == page("master_up", client="orders", master=name) == 1
    client.close()
    assert {name for name, points in collect().items() if points} == {"redlock_fast.grant"}


def test_the_next_client_of_a_name_counts_on(valkey: Masters, engine_name: str) -> None:
    """Catches: the sum falls to the count of the next client, so its difference is a negative number."""
    from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
    from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader

    from redlock_fast.otel import RedlockMetrics

    reader = InMemoryMetricReader(preferred_temporality={ObservableCounter: AggregationTemporality.DELTA})
    provider = MeterProvider([reader], shutdown_on_exit=False)
    metrics = RedlockMetrics(provider)

    def acquired() -> list[float]:
        """Since the last time."""
        data: Any = reader.get_metrics_data()
        exported = (metric for metric in data.resource_metrics[0].scope_metrics[0].metrics)
        points = (
            point for one in exported if one.name == "redlock_fast.acquires" for point in one.data.data_points
        )
        return [point.value for point in points if point.attributes["outcome"] == "acquired"]

    def use(locks: int, *, more: int = 0) -> FastRedlock:
        with FastRedlock(
            valkey.urls, node_timeout=DEADLINE, connect_timeout=DEADLINE, engine=engine_name
        ) as client:
            metrics.add(client, "shop")
            for number in range(locks + more):
                if number == locks:
                    found.append(acquired())
                with client.lock("r"):
                    pass
            if not more:
                found.append(acquired())
        return client

    found: list[list[float]] = []
    exists = use(3, more=1)
    use(2)
    assert exists.stats().acquired == 4
    use(1)  # that of 2 is gone
    assert found == [[3], [1 + 2], [1]]
    provider.shutdown()


@pytest.fixture
def exporter() -> Any:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: Any) -> Any:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def life(client: Plain) -> None:
    """Acquired, refused, extended, released; with ``with``, and refused there."""
    one, other = client.client.lock("secret"), client.client.lock("secret", timeout=0)
    assert client.wait(one.acquire())
    assert client.wait(other.acquire()) is False
    assert client.wait(one.extend()) > 0
    assert client.wait(one.release()) is True
    with pytest.raises(LockLost, match="secret"):
        client.wait(one.extend())

    async def scoped() -> None:
        async with one:
            assert one.locked()

    if client._runner:
        client.wait(scoped())
    else:
        with one:
            assert one.locked()


EXPECTED = [
    ("acquire", "acquired"),
    ("acquire", "contended"),
    ("extend", "extended"),
    ("release", "released"),
    ("extend", "LockLost"),
    ("acquire", "acquired"),
    ("release", "released"),
]
#: With ``slower_than``: what another holder refused, and what failed.
BAD = [EXPECTED[1], EXPECTED[4]]


def written(exporter: Any) -> list[tuple[str, str | None]]:
    """The operation and the error or outcome of each span."""
    return [
        (
            span.name.removeprefix("redlock_fast."),
            span.attributes.get("error.type") or span.attributes.get("redlock_fast.outcome"),
        )
        for span in exporter.get_finished_spans()
    ]


@pytest.mark.parametrize(("resources", "slower_than"), [(False, 0.0), (True, 0.0), (False, 3600.0)])
def test_spans(
    exporter: Any,
    provider: Any,
    valkey: Masters,
    plain: Callable[..., Plain],
    resources: bool,
    slower_than: float,
) -> None:
    from redlock_fast.otel import trace

    client = plain(valkey, label="till").at_full_strength()
    untraced = client.client.lock("before")
    client.wait(untraced.acquire())
    trace(client.client, provider, resources=resources, slower_than=slower_than)
    life(client)
    expected = BAD if slower_than else EXPECTED
    spans = exporter.get_finished_spans()
    assert written(exporter) == expected
    assert [not span.status.is_ok for span in spans] == [outcome == "LockLost" for _, outcome in expected]
    assert all(("secret" in span.to_json()) == resources for span in spans), "a name may be personal data"
    assert {span.attributes["redlock_fast.label"] for span in spans} == {"till"}
    assert {span.instrumentation_scope.version for span in spans} == {__version__}
    client.wait(untraced.release())


def test_span_of_what_was_slow(
    exporter: Any, provider: Any, valkey: Masters, plain: Callable[..., Plain]
) -> None:
    """The span lasts as long as the wait, and is the child of the caller's span."""
    from opentelemetry.trace import get_tracer

    from redlock_fast.otel import trace

    client = plain(valkey).at_full_strength()
    trace(client.client, provider, slower_than=0.1)
    holder, waiter = client.client.lock("r", ttl=2.0), client.client.lock("r")
    assert client.wait(holder.acquire())
    exporter.clear()  # the machine may have been slow
    with get_tracer("app", tracer_provider=provider).start_as_current_span("request") as request:
        assert client.wait(waiter.acquire())
    slow, around = exporter.get_finished_spans()
    assert slow.name == "redlock_fast.acquire"
    assert slow.parent.span_id == request.get_span_context().span_id
    assert around.start_time <= slow.start_time
    assert slow.end_time <= around.end_time
    assert slow.end_time - slow.start_time >= 0.1e9
    client.wait(waiter.release())


def test_trace_that_is_not_sampled(valkey: Masters, plain: Callable[..., Plain]) -> None:
    """Catches: a sampler that is asked, and a span that is made, for an unsampled trace."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler
    from opentelemetry.trace import get_tracer

    from redlock_fast.otel import trace

    class Asked(Sampler):
        names: list[str] = []  # noqa: RUF012

        def should_sample(
            self, parent_context: Any, trace_id: int, name: str, *args: Any, **more: Any
        ) -> Any:
            self.names.append(name)
            return ALWAYS_OFF.should_sample(parent_context, trace_id, name, *args, **more)

        def get_description(self) -> str:
            return "asked"

    provider = TracerProvider(sampler=Asked(), shutdown_on_exit=False)
    client = plain(valkey).at_full_strength()
    trace(client.client, provider)
    with get_tracer("app", tracer_provider=provider).start_as_current_span("request"):
        life(client)
    assert Asked.names == ["request"]
    life(client)
    assert len(Asked.names) == 1 + len(EXPECTED), "without a span around it the sampler decides"


def test_negative_threshold(valkey: Masters) -> None:
    from redlock_fast.otel import trace

    with FastRedlock(valkey.urls) as client, pytest.raises(ConfigError, match="slower_than"):
        trace(client, slower_than=-0.01)


def test_spans_with_exceptions_and_with_metrics(
    exporter: Any, provider: Any, page: Page, valkey: Masters, connected: MakeClient
) -> None:
    from redlock_fast.otel import trace

    client = connected(valkey, ttl=TTL)
    trace(client, provider)
    page.collector.add(client, latency=True)
    assert isinstance(client, FastRedlock)
    with pytest.raises(KeyError), client.lock("r"):
        raise KeyError("of the body")
    for master in valkey:
        master.kill()
    with pytest.raises(QuorumUnavailable):
        client.lock("r").acquire(timeout=0.1)
    errors = [span.attributes.get("error.type") for span in exporter.get_finished_spans()]
    assert errors == [None, None, "QuorumTimeout"]
    assert page("grant_seconds_count") == 1


class Collects:
    """A recorder that keeps each operation and its outcome."""

    slower_than = 0.0

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, str]] = []

    def record(self, operation: str, lock: Any, seconds: float, outcome: str, error: Any) -> None:
        self.outcomes.append((operation, outcome))

    def held(self, lock: Any, seconds: float, outcome: str) -> None:
        self.outcomes.append(("held", outcome))


class Raises:
    """A recorder that raises this for each acquire."""

    slower_than = 0.0

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def record(self, operation: str, *args: Any) -> None:
        if operation == "acquire":
            raise self.error

    def held(self, *args: Any) -> None: ...

    def record_seconds(self, seconds: float) -> None:
        raise self.error


@pytest.mark.parametrize("scoped", [True, False])
def test_lock_whose_recorder_breaks(
    valkey: Masters, plain: Callable[..., Plain], caplog: pytest.LogCaptureFixture, scoped: bool
) -> None:
    """An error of telemetry is logged. What a signal handler raises there releases the lock."""
    client = plain(valkey).at_full_strength()
    recorder = Raises(OSError("the disk is full"))
    instrument(client.client, recorder)
    lock = client.client.lock("r")

    async def enter() -> None:
        await lock.__aenter__()

    def acquire() -> Any:
        if scoped:
            return client.wait(enter()) if client._runner else lock.__enter__()
        return client.wait(lock.acquire())

    acquire()
    assert lock.locked()
    assert [record.event for record in caplog.records] == ["recorder-error"]
    client.wait(lock.release())
    recorder.error = SystemExit()
    with pytest.raises(SystemExit):
        acquire()
    assert not lock.locked()
    assert client.locked("r") is False


def test_a_meter_that_fails_undoes_no_grant(
    valkey: Masters, plain: Callable[..., Plain], caplog: pytest.LogCaptureFixture
) -> None:
    """Its error is logged; one lock of a batch is not lost by it."""

    class Broken(Clients):
        def _histogram(self, metric: Metric, labels: tuple[str, ...]) -> Any:
            return Raises(OSError("the disk is full")).record_seconds

    client = plain(valkey).at_full_strength()
    Broken().add(client.client, latency=True)
    lock = client.client.lock("r")
    assert client.wait(lock.acquire())
    batch = client.wait(client.client.acquire_many(["a", "b"]))
    assert all(one.locked() for one in (lock, *batch))
    assert {record.event for record in caplog.records} == {"recorder-error"}
    assert client.wait(client.client.release_many([lock, *batch])) == [True] * 3


def test_interrupted_lock_with_spans_is_not_left(
    provider: Any, valkey: Masters, connected: MakeClient
) -> None:
    """A KeyboardInterrupt at each moment: after ``with`` has raised, the lock is not held."""
    from redlock_fast.otel import trace

    client = connected(valkey)
    trace(client, provider)

    def enter() -> None:
        with lock:
            pass

    for number in itertools.count():
        lock = client.lock("r")
        moment = interrupted(enter, number, spared=("exporters/instrument.py",))
        if moment is None:
            break
        if lock.locked():
            # The caller has the result; or on the way in, before anything of a release has begun.
            assert moment in ("return __enter__", "call exit_lock")
            lock.release()
    assert number > 5
    assert client.locked("r") is False


def test_a_lock_that_is_given_up_is_not_released(valkey: Masters, plain: Callable[..., Plain]) -> None:
    """detach() in ``with``: its end reports no release."""
    client = plain(valkey).at_full_strength()
    recorder = Collects()
    instrument(client.client, recorder)
    lock = client.client.lock("r")

    async def scoped() -> None:
        async with lock:
            lock.detach()

    if client._runner:
        client.wait(scoped())
    else:
        with lock:
            lock.detach()
    assert recorder.outcomes == [("acquire", "acquired")]
    assert client.locked("r") is True


def test_failed_take_over_keeps_the_key(
    provider: Any, valkey: Masters, plain: Callable[..., Plain], all_masters: None
) -> None:
    """Catches: an acquire of a token that fails, and a wrapper that then releases another process' lock."""
    from redlock_fast.otel import trace

    owner, client = plain(valkey).at_full_strength(), plain(valkey, node_timeout=0.3).at_full_strength()
    trace(client.client, provider)
    lock = owner.client.lock("r", ttl=TTL)
    owner.wait(lock.acquire())
    taken = client.client.lock("r", token=lock.token)

    async def enter() -> None:
        await taken.__aenter__()

    for master in valkey[:3]:
        master.pause()
    for attempt in (taken.acquire, enter if client._runner else taken.__enter__):
        with pytest.raises(QuorumUnavailable):
            client.wait(attempt())
    for master in valkey:
        master.resume()

    def asked() -> bool:
        """A busy master may take longer than the timeout."""
        with contextlib.suppress(QuorumUnavailable):
            assert client.locked("r") is True
            return True
        return False

    eventually(asked, "the masters answer")
    owner.wait(lock.release())


def test_every_maker_of_locks_is_traced(
    exporter: Any, provider: Any, valkey: Masters, plain: Callable[..., Plain]
) -> None:
    """Catches: a kind of lock whose locks are made elsewhere than where ``instrument`` looks."""
    from redlock_fast.otel import trace

    driven = plain(valkey).at_full_strength()
    client, wait = driven.client, driven.wait
    trace(client, provider)
    makers: dict[str, Callable[[], Any]] = {
        "lock": lambda: client.lock("a"),
        "acquire": lambda: wait(client.acquire("b")),
        "rwlock": lambda: client.rwlock("c").read(),
        "semaphore": lambda: client.semaphore("d", 2),
        "multilock": lambda: client.multilock(["e", "f"]),
    }
    if driven._runner is None:  # each wait is another task, and another owner
        makers["rlock"] = lambda: client.rlock("g")
    for name, make in makers.items():
        exporter.clear()
        lock = make()
        if name != "acquire":
            assert wait(lock.acquire())
        wait(lock.release())
        names = [span.name for span in exporter.get_finished_spans()]
        assert names == ["redlock_fast.acquire", "redlock_fast.release"], name
