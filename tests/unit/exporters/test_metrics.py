"""Names that others build on: events, metrics and their labels, in code, documents and the dashboard."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from redlock_fast import (
    AsyncFastRedlock,
    AsyncShardedRedlock,
    ClientClosed,
    ConfigError,
    FastRedlock,
    ShardedRedlock,
)
from redlock_fast.exporters.metrics import COMMON, METRICS
from redlock_fast.masters.faults import ERRORS, fault_cause
from redlock_fast.prometheus import RedlockCollector
from redlock_fast.telemetry import fields

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "telemetry.md").read_text()
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "redlock-fast.json").read_text())

#: All event names. They stay.
EVENTS = {
    "blocks-event-loop", "connector-error", "engine-error", "fork-error", "leader-error",
    "lock-held-long", "lock-lost", "long-timeout", "master-anonymous",
    "master-connected", "master-fault", "master-guarded",
    "master-left", "master-lost", "master-may-forget", "master-trusted", "master-unlisted",
    "master-unreachable", "on-lost-error", "once-per-shortened", "recorder-error", "release-error",
    "renewal-error", "request-lost-lock", "request-refused", "run-refused", "run-skipped",
    "too-many-labels", "unseen-fork", "waits-for-itself",
}  # fmt: skip
#: What comes behind a name, by kind.
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}


def logged(tree: ast.AST) -> Iterator[str]:
    """The events that a file logs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            logs = name in ("warn", "warn_of", "info", "log_error", "log_outcome", "CallOfTheProgram")
            if logs and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value)
            assert "logger.exception" not in ast.unparse(function), "log_error() gives the record its event"


def test_the_events_that_are_logged_are_these() -> None:
    files = [path for path in (ROOT / "redlock_fast").rglob("*.py") if path.name != "telemetry.py"]
    assert {event for path in files for event in logged(ast.parse(path.read_text()))} == EVENTS


def test_events_are_documented() -> None:
    page = (ROOT / "docs" / "logging.md").read_text()
    assert set(re.findall(r"^\| `([a-z-]+)` \| (?:INFO|WARNING|ERROR)", page, re.MULTILINE)) == EVENTS
    assert set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE)) == set(fields("event"))


def test_metrics_are_documented_with_their_labels() -> None:
    rows = dict(re.findall(r"^\| `(redlock_fast_\w+)` \|(.*)$", DOCUMENT, re.MULTILINE))
    assert set(rows) == {f"redlock_fast_{metric.name}" for metric in METRICS}
    for metric in METRICS:
        row = rows[f"redlock_fast_{metric.name}"].split("|")
        assert row[0].strip() == metric.kind
        assert set(re.findall(r"`(\w+)`", row[1])) == set(metric.labels), metric.name


def expressions(node: Any) -> Iterator[str]:
    """The queries of a dashboard."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("expr", "query") and isinstance(value, str):
                yield value
            yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


@pytest.mark.parametrize("queries", [list(expressions(DASHBOARD)), [DOCUMENT]], ids=["dashboard", "document"])
def test_names_in_queries_are_those_of_the_collector(queries: list[str]) -> None:
    exported = {f"redlock_fast_{one.name}{end}" for one in METRICS for end in SUFFIXES[one.kind]}
    exported |= {f"redlock_fast_{one.name}" for one in METRICS} if queries == [DOCUMENT] else set()
    used = {name for query in queries for name in re.findall(r"\bredlock_fast_\w+", query)}
    assert used
    assert used <= exported


def test_every_metric_is_on_the_dashboard() -> None:
    queries = " ".join(expressions(DASHBOARD))
    assert [metric.name for metric in METRICS if f"redlock_fast_{metric.name}" not in queries] == []


def test_panels_of_the_dashboard_are_apart_and_named() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] for panel in panels)
    places = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & places
        assert at["x"] + at["w"] <= 24
        places |= cells


def test_labels_have_no_password_and_no_resource() -> None:
    registry = CollectorRegistry()
    with FastRedlock(["redis://somebody:s3cret@127.0.0.1:1/0"], key_prefix="hidden:") as client:
        RedlockCollector(registry).add(client, latency=True)
        client.lock("hidden")
        page = generate_latest(registry).decode()
    assert 'master="' in page
    assert "s3cret" not in page
    assert "hidden" not in page
    labels = set(re.findall(r'[{,](\w+)="', page))
    assert labels <= {*COMMON, *(label for metric in METRICS for label in metric.labels), "le"}


def test_names_of_clients() -> None:
    collector = RedlockCollector(None)
    url = ["redis://127.0.0.1:1"]
    with FastRedlock(url) as one, FastRedlock(url) as other:
        collector.add(one)
        collector.add(one)
        with pytest.raises(ConfigError, match="another client is 'default'"):
            collector.add(other)
        with pytest.raises(ConfigError, match="name must be"):
            collector.add(other, "")
        with pytest.raises(ConfigError, match="this client is 'default' already"):
            collector.add(one, "second")
        collector.add(other, "other")
        assert [common for common, _ in collector.parts()] == [("default", ""), ("other", "")]
    assert list(collector.parts()) == []


@pytest.fixture
def otel() -> Any:
    pytest.importorskip(
        "opentelemetry", reason="opentelemetry is not installed: pip install opentelemetry-api"
    )
    return importlib.import_module("redlock_fast.otel")


URLS = ["redis://127.0.0.1:1"]
CLIENTS: list[Any] = [
    lambda: FastRedlock(URLS), lambda: AsyncFastRedlock(URLS),
    lambda: ShardedRedlock([URLS]), lambda: AsyncShardedRedlock([URLS]),
]  # fmt: skip


def test_what_is_no_client(otel: Any) -> None:
    for call in (RedlockCollector(None).add, otel.RedlockMetrics().add, otel.trace):
        for wrong in (3, None, URLS, FastRedlock, FastRedlock(URLS).lock("r")):
            with pytest.raises(
                ConfigError, match=f"client must be a FastRedlock, .*not {type(wrong).__name__}"
            ):
                call(wrong)


@pytest.mark.parametrize("make", CLIENTS)
def test_a_closed_client(otel: Any, make: Any) -> None:
    client = make()
    closing = client.close()
    if closing is not None:
        asyncio.run(closing)
    for call in (RedlockCollector(None).add, otel.RedlockMetrics().add, otel.trace):
        with pytest.raises(ClientClosed):
            call(client)


def test_what_is_no_registry_and_no_provider(otel: Any) -> None:
    client = FastRedlock(URLS)
    with pytest.raises(ConfigError, match="registry must be a CollectorRegistry or None, not int"):
        RedlockCollector(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="provider must be a MeterProvider or None, not int"):
        otel.RedlockMetrics(3)
    with pytest.raises(ConfigError, match="provider must be a TracerProvider or None, not int"):
        otel.trace(client, 3)
    for option in ("latency", "durations"):
        with pytest.raises(ConfigError, match=f"{option} must be True or False"):
            RedlockCollector(None).add(client, **{option: 1})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="resources must be True or False"):
        otel.trace(client, resources=1)


@pytest.mark.parametrize("make", CLIENTS)
def test_a_client_is_traced_once_with_each_provider(otel: Any, make: Any) -> None:
    from opentelemetry.trace import NoOpTracerProvider

    client = make()
    for provider in (None, NoOpTracerProvider(), NoOpTracerProvider()):
        otel.trace(client, provider)
        with pytest.raises(ConfigError, match="traced already with this provider"):
            otel.trace(client, provider, resources=True)


def test_a_registry_takes_one_collector() -> None:
    registry = CollectorRegistry()
    RedlockCollector(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        RedlockCollector(registry)


@pytest.mark.parametrize(
    ("detail", "cause"),
    [
        (b"-OOM command not allowed\r\n", "OOM"),
        (b"-ERR unknown command\r\n", "ERR"),
        (b"-ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM x\r\n", "OOM"),
        (b"-MADEUP by a hostile master\r\n", "other error"),
        (b"-\r\n", "other error"),
        (b"-  \r\n", "other error"),
        (b"-\xff\xfe\r\n", "other error"),
        (b"+QUEUED\r\n", "unexpected reply"),
        ("unexpected reply of 5000 bytes", "unexpected reply"),
        ("protocol error: unknown reply type b'x'", "protocol error"),
        ("connection closed by the master", "connection"),
        ("Connection reset by peer", "connection"),
        ("buffer full", "backlog"),
        ("it restarted after it was asked", "restart"),
        ("its record forbids the list of this attempt", "another list"),
    ],
)
def test_causes_of_faults(detail: str | bytes, cause: str) -> None:
    assert fault_cause(detail) == cause
    assert cause in ERRORS or cause in DOCUMENT
