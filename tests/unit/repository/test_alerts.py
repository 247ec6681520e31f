"""deploy/prometheus: alerts that fire when they should, the same everywhere, on metrics that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from redlock_fast.exporters.metrics import METRICS

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "prometheus"
RULES = yaml.safe_load((FOLDER / "rules.yaml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
DOCUMENT = (ROOT / "docs" / "telemetry.md").read_text()
#: What comes behind a name, by kind.
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}


def promtool(*arguments: str) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is missing: .ci/tools FOLDER downloads it")
    done = subprocess.run([program, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_are_valid() -> None:
    promtool("check", "rules", "rules.yaml")


def test_alerts_fire_when_they_should() -> None:
    promtool("test", "rules", "rules-test.yaml")


def test_each_alert_has_a_test() -> None:
    tests = (FOLDER / "rules-test.yaml").read_text()
    assert [one["alert"] for one in ALERTS if f"{one['alert']}" not in tests] == []


def test_the_operator_has_the_same_alerts() -> None:
    path = ROOT / "deploy" / "kubernetes" / "monitoring" / "prometheusrule.yaml"
    assert yaml.safe_load(path.read_text())["spec"] == RULES


def test_they_are_about_metrics_that_exist() -> None:
    exported = {f"redlock_fast_{one.name}{end}": one for one in METRICS for end in SUFFIXES[one.kind]}
    for alert in ALERTS:
        used = re.findall(r"\b(redlock_fast_\w+)(?:\{([^}]*)\})?", alert["expr"])
        assert used
        for name, selector in used:
            labels = set(re.findall(r"(\w+)[!=]", selector))
            assert labels <= {"client", "group", *exported[name].labels}, alert["alert"]


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r" ", "-", re.sub(r"[^\w\- ]", "", title.lower()).strip()) for title in titles}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: str(one["alert"]))
def test_an_alert_says_what_to_do(alert: Any) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    assert page == "https://redlock-fast.github.io/redlock-fast/incidents.html"
    assert anchor in anchors((ROOT / "docs" / "incidents.md").read_text())


def test_they_are_documented() -> None:
    assert re.findall(r"^\| `(Redlock\w+)` \|", DOCUMENT, re.MULTILINE) == [one["alert"] for one in ALERTS]
