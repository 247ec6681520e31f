"""Metrics and spans for OpenTelemetry (the extra ``otel``).

    from redlock_fast import otel

    metrics = otel.RedlockMetrics()
    metrics.add(client, "orders")
    otel.trace(client, slower_than=0.01)

Counters and gauges are read from the clients when a reader collects them. See docs/telemetry.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from .errors import ConfigError, needs
from .exporters.durations import kind_of
from .exporters.instrument import instrument
from .exporters.metrics import (
    COMMON,
    GAUGES,
    METRICS,
    Client,
    Clients,
    Metric,
    Point,
    all_parts,
    check_client,
)
from .locks.client_base import BaseClient
from .locks.config import check_flag, number

with needs("opentelemetry", "redlock-fast[otel]"):
    from opentelemetry import metrics as api
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation
    from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider, get_current_span, get_tracer

#: The name and the version of the instrumentation scope.
SCOPE, VERSION = "redlock_fast", str(sys.modules["redlock_fast"].__version__)


#: A counter and the values of its labels.
Key = tuple[str, tuple[str, ...]]


class RedlockMetrics(Clients):
    """Exports the metrics of all clients that were added; make one for each meter provider.

    ``provider``: the global meter provider by default. Names are those for Prometheus with a dot after
    ``redlock_fast``, without unit and ``_total``. Raises ConfigError for an object that is no meter provider.
    Example: the head of this module. docs/telemetry.md lists the metrics.
    """

    def __init__(self, provider: MeterProvider | None = None) -> None:
        check_provider(provider, MeterProvider)
        super().__init__()
        meter = api.get_meter(SCOPE, VERSION, meter_provider=provider)
        create = {"counter": meter.create_observable_counter, "gauge": meter.create_observable_gauge}
        self._histograms: dict[str, Histogram] = {}
        self._totals: dict[Key, float] = {}  # the sums that were read last
        self._before: dict[Key, float] = {}  # of the earlier clients of a name
        for metric in METRICS:
            name = f"redlock_fast.{metric.name.removesuffix('_seconds')}"
            if metric.kind == "histogram":
                self._histograms[metric.name] = meter.create_histogram(
                    name, metric.unit, metric.help, explicit_bucket_boundaries_advisory=metric.bounds
                )
            else:
                create[metric.kind](name, [self._reader(metric)], metric.unit, metric.help)

    def _reader(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        names = (*COMMON, *metric.labels)

        def read(options: CallbackOptions) -> Iterator[Observation]:
            for point in self.points():
                if point.metric == metric.name:
                    yield Observation(self._value(point), attributes(names, point.labels))

        return read

    def _value(self, point: Point) -> float:
        """That of a gauge; the sum of all clients that had the name, because no sum may fall."""
        if point.metric in GAUGES:
            return point.value
        key = point.metric, point.labels
        self._totals[key] = point.value + self._before.get(key, 0)
        return self._totals[key]

    def _forget(self, alive: Collection[str]) -> None:
        for point in self.points(closed=True):  # what was counted since the last time
            self._value(point)
        ended = {key: total for key, total in self._totals.items() if key[1][0] not in alive}
        self._before = {**self._before, **ended}

    def _histogram(self, metric: Metric, labels: tuple[str, ...]) -> Callable[[float], None]:
        record = self._histograms[metric.name].record
        mine = attributes((*COMMON, *metric.labels), labels)
        return lambda seconds: record(seconds, mine)


def attributes(names: tuple[str, ...], values: tuple[str, ...]) -> dict[str, str]:
    """The labels as a dict, without empty ones: Prometheus and OpenTelemetry treat both the same."""
    return {name: value for name, value in zip(names, values, strict=True) if value}


def check_provider(provider: object, kind: type[Any]) -> None:
    if provider is not None and not isinstance(provider, kind):
        raise ConfigError(f"provider must be a {kind.__name__} or None, not {type(provider).__name__}")


# --- spans ---------------------------------------------------------------------------------------


def trace(
    client: Client,
    provider: TracerProvider | None = None,
    *,
    resources: bool = False,
    slower_than: float = 0.0,
) -> None:
    """Write spans for acquires, releases and extensions of the locks that ``client`` makes from now on.

    An acquire's span includes its waiting. ``provider``: the global tracer provider by default.
    ``resources``: whether spans have the name of the resource, and the texts of errors, which contain it;
    names may be personal data. ``slower_than``: seconds; an operation that succeeded in less time has no
    span. Contended, failed and expired ones always have. A cancelled or interrupted operation is an error,
    contention is not. Inside of a trace that is not sampled there are no spans, whatever the sampler says.
    Batches, renewal and locks that were made before have no spans. Returns None. Raises ConfigError for a
    negative ``slower_than``, an object that is no client or provider, and for a client that writes spans to
    this provider already; ClientClosed for a closed client.
    """
    check_client(client)
    check_provider(provider, TracerProvider)
    spans = Spans(provider, check_flag("resources", resources), number("slower_than", slower_than, low=0.0))
    parts = [part for _, part in all_parts(client)]
    if any(traced(part, provider) for part in parts):
        raise ConfigError("client: it is traced already with this provider, and would have each span twice")
    for part in parts:
        instrument(part, spans)


def traced(client: BaseClient, provider: TracerProvider | None) -> bool:
    """Whether ``client`` writes spans to ``provider``."""
    reports = client._core.observe().reports
    recorders = () if reports is None else reports._recorders
    return any(isinstance(one, Spans) and one.provider is provider for one in recorders)


class Spans:
    """Writes a span for each operation that has ended. ``resources``: whether it names the resource.

    A span that is written afterwards costs nothing while an operation is fast, and it has all its attributes
    when the sampler sees it.
    """

    def __init__(self, provider: TracerProvider | None, resources: bool, slower_than: float) -> None:
        self.slower_than: float = slower_than
        self.provider: TracerProvider | None = provider
        self._tracer = get_tracer(SCOPE, VERSION, tracer_provider=provider)
        self._resources = resources

    def record(
        self, operation: str, lock: Any, seconds: float, outcome: str, error: BaseException | None
    ) -> None:
        context = get_current_span().get_span_context()
        if context.is_valid and not context.trace_flags.sampled:
            return
        end = time.time_ns()
        span = self._tracer.start_span(
            f"redlock_fast.{operation}",
            kind=SpanKind.CLIENT,
            attributes=self._attributes(lock, outcome, error),
            start_time=end - int(seconds * 1e9),
            record_exception=False,
            set_status_on_exception=False,
        )
        if error is not None and outcome != "contended":
            span.set_status(Status(StatusCode.ERROR, str(error) if self._resources else None))
        span.end(end)

    def held(self, lock: Any, seconds: float, outcome: str) -> None:
        """No span: a hold is what lies between two of them."""

    def _attributes(self, lock: Any, outcome: str, error: BaseException | None) -> dict[str, Any]:
        mine: dict[str, Any] = {
            "redlock_fast.kind": kind_of(lock),
            "redlock_fast.outcome": outcome,
            "redlock_fast.ttl": lock.ttl,
        }
        if lock.label:
            mine["redlock_fast.label"] = lock.label
        if outcome in ("acquired", "extended"):
            mine["redlock_fast.validity"] = lock.validity
        if error is not None and outcome != "contended":
            mine["error.type"] = type(error).__name__
        if self._resources:
            resource = lock.resource
            mine["redlock_fast.resource"] = resource if isinstance(resource, str) else repr(resource)
        return mine


__all__ = ["RedlockMetrics", "trace"]
