"""Metrics and spans for OpenTelemetry (the extra ``otel``).

    from redlock_fast import otel

    metrics = otel.RedlockMetrics()
    metrics.add(client, "orders")
    otel.trace(client)

Metrics are read from the clients when a reader collects them. See docs/telemetry.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from .errors import Contended, LockAlreadyHeld, needs
from .exporters.instrument import instrument
from .exporters.metrics import BOUNDS, COMMON, METRICS, Client, Clients, Metric
from .sharded.placement import Sharding

with needs("opentelemetry", "redlock-fast[otel]"):
    from opentelemetry import metrics as api
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider, get_tracer

SCOPE = "redlock_fast"

#: OpenTelemetry accepts no finished histogram: it is exported as counters, cumulative, with the label ``le``.
PARTS = {
    "bucket": "Grants that took at most le seconds.",
    "count": "Grants that were timed.",
    "sum": "Seconds that all grants took.",
}


class RedlockMetrics(Clients):
    """Exports the metrics of all clients that were added; make one for each meter provider.

    ``provider``: the global meter provider by default. Names are those for Prometheus with a dot after
    ``redlock_fast``, without unit and ``_total``. ``add`` raises ConfigError for a duplicate name. Example:
    the head of this module. docs/telemetry.md lists the metrics.
    """

    def __init__(self, provider: MeterProvider | None = None) -> None:
        super().__init__()
        meter = api.get_meter(SCOPE, meter_provider=provider)
        create = {"counter": meter.create_observable_counter, "gauge": meter.create_observable_gauge}
        for metric in METRICS:
            if metric.kind != "histogram":
                name = f"redlock_fast.{metric.name.removesuffix('_seconds')}"
                unit = "s" if metric.name.endswith("_seconds") else ""
                create[metric.kind](name, [self._reader(metric)], unit, metric.help)
        for part, text in PARTS.items():
            name, unit = f"redlock_fast.grant_{part}", "s" if part == "sum" else ""
            meter.create_observable_counter(name, [self._timing_reader(part)], unit, text)

    def _reader(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        names = (*COMMON, *metric.labels)

        def read(options: CallbackOptions) -> Iterator[Observation]:
            for point in self.points():
                if point.metric == metric.name:
                    yield Observation(point.value, attributes(names, point.labels))

        return read

    def _timing_reader(self, part: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(options: CallbackOptions) -> Iterator[Observation]:
            for labels, buckets in self.timings():
                common = attributes(COMMON, labels)
                if part == "sum":
                    yield Observation(buckets.total, common)
                elif part == "count":
                    yield Observation(sum(buckets.counts), common)
                else:
                    ends = itertools.accumulate(buckets.counts)
                    for bound, end in zip((*map(str, BOUNDS), "+Inf"), ends, strict=True):
                        yield Observation(end, {**common, "le": bound})

        return read


def attributes(names: tuple[str, ...], values: tuple[str, ...]) -> dict[str, str]:
    """The labels as a dict, without empty ones: Prometheus and OpenTelemetry treat both the same."""
    return {name: value for name, value in zip(names, values, strict=True) if value}


# --- spans ---------------------------------------------------------------------------------------


def trace(client: Client, provider: TracerProvider | None = None, *, resources: bool = False) -> None:
    """Write a span for each acquire, release and extension of the locks that ``client`` makes from now on.

    An acquire's span includes its waiting. ``provider``: the global tracer provider by default.
    ``resources``: whether spans have the name of the resource, and the texts of errors, which contain it;
    names may be personal data. A cancelled or interrupted operation is an error, contention is not. Batches,
    renewal and locks that were made before have no spans. Returns None; raises no exception.
    """
    spans = Spans(get_tracer(SCOPE, tracer_provider=provider), resources)
    for core in client._clients.values() if isinstance(client, Sharding) else [client]:
        instrument(core, lambda base: traced(base, spans), lambda base: traced_aio(base, spans))


class Spans:
    """Writes the spans. ``resources``: whether they contain the names of resources."""

    def __init__(self, tracer: Any, resources: bool) -> None:
        self._tracer = tracer
        self._resources = resources

    @contextmanager
    def span(self, what: str, lock: Any) -> Iterator[Span]:
        """A span around the block. Contended is an outcome, every other exception an error."""
        name, mine = f"redlock_fast.{what}", {"redlock_fast.ttl": lock.ttl}
        if self._resources:
            resource = lock.resource
            mine["redlock_fast.resource"] = resource if isinstance(resource, str) else repr(resource)
        with self._tracer.start_as_current_span(
            name,
            kind=SpanKind.CLIENT,
            attributes=mine,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Contended:
                span.set_attribute("redlock_fast.outcome", "contended")
                raise
            except BaseException as error:
                self._fail(span, error)
                raise

    def _fail(self, span: Span, error: BaseException) -> None:
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(Status(StatusCode.ERROR, str(error) if self._resources else None))


def granted(span: Span, lock: Any, done: bool) -> None:
    span.set_attribute("redlock_fast.outcome", "acquired" if done else "contended")
    span.set_attribute("redlock_fast.validity", lock.validity)


def released(span: Span, done: bool) -> None:
    span.set_attribute("redlock_fast.outcome", "released" if done else "expired")


def traced(base: Any, spans: Spans) -> dict[str, Any]:
    """The methods of a lock for threads, with spans."""

    def acquire(self: Any, blocking: bool = True, timeout: float = -1) -> bool:
        with spans.span("acquire", self) as span:
            done: bool = base.acquire(self, blocking, timeout)
            granted(span, self, done)
            return done

    def enter(self: Any) -> Any:
        try:
            with spans.span("acquire", self) as span:
                base.__enter__(self)
                granted(span, self, True)
            return self
        except LockAlreadyHeld:
            raise
        except BaseException:
            base.release(self)  # a signal handler raised, perhaps after the grant; no effect if not held
            raise

    def release(self: Any) -> bool:
        with spans.span("release", self) as span:
            done: bool = base.release(self)
            released(span, done)
            return done

    def leave(self: Any, *error: Any) -> None:
        with spans.span("release", self):
            base.__exit__(self, *error)

    def extend(self: Any, ttl: float | None = None, *, confirm: bool = False) -> float:
        with spans.span("extend", self):
            validity: float = base.extend(self, ttl, confirm=confirm)
            return validity

    return {"acquire": acquire, "release": release, "extend": extend, "__enter__": enter, "__exit__": leave}


def traced_aio(base: Any, spans: Spans) -> dict[str, Any]:
    """The methods of a lock for asyncio, with spans."""

    async def acquire(self: Any, blocking: bool = True, timeout: float = -1) -> bool:
        with spans.span("acquire", self) as span:
            done: bool = await base.acquire(self, blocking, timeout)
            granted(span, self, done)
            return done

    async def enter(self: Any) -> Any:
        try:
            with spans.span("acquire", self) as span:
                await base.__aenter__(self)
                granted(span, self, True)
            return self
        except LockAlreadyHeld:
            raise
        except BaseException:
            if self.locked():
                await base.release(self)
            raise

    async def release(self: Any) -> bool:
        with spans.span("release", self) as span:
            done: bool = await base.release(self)
            released(span, done)
            return done

    async def leave(self: Any, *error: Any) -> None:
        if error[0] is GeneratorExit:  # the task is destroyed
            await base.__aexit__(self, *error)
            return
        with spans.span("release", self):
            await base.__aexit__(self, *error)

    async def extend(self: Any, ttl: float | None = None, *, confirm: bool = False) -> float:
        with spans.span("extend", self):
            validity: float = await base.extend(self, ttl, confirm=confirm)
            return validity

    return {"acquire": acquire, "release": release, "extend": extend, "__aenter__": enter, "__aexit__": leave}


__all__ = ["RedlockMetrics", "trace"]
