"""Metrics for Prometheus: a collector for prometheus_client (the extra ``prometheus``).

    from redlock_fast.prometheus import RedlockCollector

    metrics = RedlockCollector()
    metrics.add(client, "orders")

The collector reads the clients when it is scraped. See docs/telemetry.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from .errors import needs
from .exporters.metrics import BOUNDS, COMMON, METRICS, Clients, Metric

with needs("prometheus_client", "redlock-fast[prometheus]"):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

FAMILIES: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class RedlockCollector(Clients, Collector):
    """Exports the metrics of all clients that were added; make one for each registry.

    ``registry``: where to register, by default prometheus_client's global registry; None: the caller
    registers. Raises ValueError if the registry has a metric with one of these names. Example: the head of
    this module.
    """

    def __init__(self, registry: CollectorRegistry | None = REGISTRY) -> None:
        super().__init__()
        if registry is not None:
            registry.register(self)

    def describe(self) -> Iterable[Any]:
        """All metrics without values. The registry uses it to find duplicate names. Never raises."""
        return [family(metric) for metric in METRICS]

    def collect(self) -> Iterable[Any]:
        """All metrics with their present values, for a scrape. Never raises."""
        families = {metric.name: family(metric) for metric in METRICS}
        for point in self.points():
            families[point.metric].add_metric(point.labels, point.value)
        for labels, buckets in self.timings():
            ends = itertools.accumulate(buckets.counts)
            names = (*map(str, BOUNDS), "+Inf")
            families["grant_seconds"].add_metric(labels, list(zip(names, ends, strict=True)), buckets.total)
        return families.values()


def family(metric: Metric) -> Any:
    return FAMILIES[metric.kind](f"redlock_fast_{metric.name}", metric.help, labels=(*COMMON, *metric.labels))


__all__ = ["RedlockCollector"]
