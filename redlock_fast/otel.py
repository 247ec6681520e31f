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

from opentelemetry import metrics as api
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider, get_tracer

from .errors import Contended, LockAlreadyHeld
from .exporters.instrument import instrument
from .exporters.latency import BOUNDS
from .exporters.metrics import COMMON, METRICS, Client, Clients, Metric
from .sharded.placement import Sharding

SCOPE = "redlock_fast"

#: The histogram, as OpenTelemetry can be told of one that was counted elsewhere: cumulative, by ``le``.
PARTS = {
    "bucket": "Grants that took up to le seconds.",
    "count": "Grants that were timed.",
    "sum": "Seconds that grants took, all together.",
}


class RedlockMetrics(Clients):
    """Tells of all clients that were added to it; one for each meter provider.

    ``provider``: the global one by default. Names are those of Prometheus with a dot behind
    ``redlock_fast``, and without unit and ``_total``.
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
    """Without those that are empty: Prometheus and OpenTelemetry take that for the same."""
    return {name: value for name, value in zip(names, values, strict=True) if value}


# --- spans ---------------------------------------------------------------------------------------


def trace(client: Client, provider: TracerProvider | None = None, *, resources: bool = False) -> None:
    """A span for each acquire, with all its waiting, release and extension of locks that ``client`` makes.

    ``provider``: the global one by default. ``resources``: whether spans say which resource it was, and
    the texts of errors, which name it, too: names may be personal data. Cancelled or interrupted ones
    are errors as well; that others hold a lock is none. Batches, renewal and locks that it made before
    have no spans.
    """
    spans = Spans(get_tracer(SCOPE, tracer_provider=provider), resources)
    for core in client._clients.values() if isinstance(client, Sharding) else [client]:
        instrument(core, lambda base: traced(base, spans), lambda base: traced_aio(base, spans))


class Spans:
    """How spans look. ``resources``: whether they may say what for."""

    def __init__(self, tracer: Any, resources: bool) -> None:
        self._tracer = tracer
        self._resources = resources

    @contextmanager
    def span(self, what: str, lock: Any) -> Iterator[Span]:
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
            base.release(self)  # acquired, but interrupted before it was told; or there is nothing
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
    """The same for asyncio."""

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
