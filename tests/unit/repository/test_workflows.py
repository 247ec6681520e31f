"""What publishes a release runs nothing that can be exchanged, and only after all checks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.versions import claims

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))

pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="source archives have no workflows")


def test_actions_are_pinned_by_hash() -> None:
    used = [line for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]
    assert used
    assert [line for line in used if not re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v[\d.]+$", line)] == []


def test_what_builds_a_release_has_exact_versions() -> None:
    text = Path(WORKFLOWS[0].parent, "wheels.yml").read_text()
    run = re.findall(r"pipx run (?:--spec )?(\S+)", text)
    lines = (ROOT / "tests/shipping/tools.txt").read_text().splitlines()
    tools = [line for line in lines if not line.startswith("#")]
    assert run
    assert [one for one in run + tools if not re.search(r"==[\d.]+$", one)] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    required = {re.split(r"\W", one)[0] for one in project["build-system"]["requires"]}
    assert required <= {one.split("==")[0] for one in tools}
    assert "tests/shipping/tools.txt" in project["tool"]["cibuildwheel"]["before-build"]


def test_all_checks_come_before_publishing() -> None:
    text = Path(WORKFLOWS[0].parent, "wheels.yml").read_text()
    publish = text[text.index("  publish:\n") :]
    assert "needs: [checks, wheels, sbom]" in publish
    assert "run: .ci/run" in text


def test_a_change_passes_all_checks_and_each_python() -> None:
    """Catches: a Python that the package claims, and that no run of a change tries."""
    workflow = yaml.safe_load(Path(WORKFLOWS[0].parent, "ci.yml").read_text())
    assert {"run": ".ci/run"} in workflow["jobs"]["checks"]["steps"]
    rows = workflow["jobs"]["matrix"]["strategy"]["matrix"]["include"]
    assert {row["python"].partition("-")[0] for row in rows} == set(claims.PYTHONS)
