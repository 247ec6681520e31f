"""Metrics for Prometheus: a collector for prometheus_client (the extra ``prometheus``).

    from redlock_fast.prometheus import RedlockCollector

    metrics = RedlockCollector()
    metrics.add(client, "orders")

The collector reads the clients when it is scraped. In the multiprocess mode of prometheus_client, for servers
with several workers, it also writes the values to the files of that mode. See docs/telemetry.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from typing import Any

from .errors import ConfigError, needs
from .exporters.metrics import COMMON, METRICS, Buckets, Clients, Metric
from .locks.config import number

with needs("prometheus_client", "redlock-fast[prometheus]"):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

    from .exporters.multiprocess import MultiprocessFiles, multiprocess_mode

FAMILIES: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class RedlockCollector(Clients, Collector):
    """Exports the metrics of all clients that were added; make one for each registry.

    ``registry``: where to register, by default prometheus_client's global registry; None: the caller
    registers. ``every``: seconds between two writes of the files, where the environment has
    ``PROMETHEUS_MULTIPROC_DIR``; each worker process makes one collector, and scrapes are answered by
    prometheus_client's ``MultiProcessCollector``. Raises ValueError if the registry has a metric with one of
    these names, and ConfigError for a wrong ``registry`` or ``every``. Example: the head of this module.
    """

    def __init__(self, registry: CollectorRegistry | None = REGISTRY, *, every: float = 5.0) -> None:
        if registry is not None and not isinstance(registry, CollectorRegistry):
            raise ConfigError(f"registry must be a CollectorRegistry or None, not {type(registry).__name__}")
        every = number("every", every, above=0.0)
        super().__init__()
        self._buckets: dict[tuple[str, tuple[str, ...]], Buckets] = {}
        self._files: MultiprocessFiles | None = None
        if multiprocess_mode():
            self._files = MultiprocessFiles(self, every)
        if registry is not None:
            registry.register(self)

    def describe(self) -> Iterable[Any]:
        """All metrics without values. The registry uses it to find duplicate names. Never raises."""
        return [family(metric) for metric in METRICS]

    def collect(self) -> Iterable[Any]:
        """All metrics with their present values, for a scrape. Never raises."""
        return self.families()

    def families(self, *, closed: bool = False) -> Collection[Any]:
        """As ``collect``. ``closed``: also what closed clients have counted."""
        families = {metric.name: family(metric) for metric in METRICS}
        for point in self.points(closed=closed):
            families[point.metric].add_metric(point.labels, point.value)
        exported = {common for common, _ in self.parts(closed=closed)}
        for (name, labels), buckets in list(self._buckets.items()):
            if labels[: len(COMMON)] in exported:
                ends = itertools.accumulate(buckets.counts)
                bounds = (*map(str, map(float, buckets.bounds)), "+Inf")
                families[name].add_metric(labels, list(zip(bounds, ends, strict=True)), buckets.total)
        return families.values()

    def _histogram(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        return self._buckets.setdefault((metric.name, labels), Buckets(metric.bounds)).add

    def _forget(self, alive: Collection[str]) -> None:
        if self._files is not None:
            self._files.forget(alive)
        self._buckets = {key: one for key, one in self._buckets.items() if key[1][0] in alive}


def family(metric: Metric) -> Any:
    return FAMILIES[metric.kind](f"redlock_fast_{metric.name}", metric.help, labels=(*COMMON, *metric.labels))


__all__ = ["RedlockCollector"]
