"""What publishes a release runs nothing that can be exchanged, and only after all checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

WORKFLOWS = sorted(Path(__file__).parents[2].glob(".github/workflows/*.yml"))

pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="source archives have no workflows")


def test_actions_are_pinned_by_hash() -> None:
    used = [line for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]
    assert used
    assert [line for line in used if not re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v[\d.]+$", line)] == []


def test_all_checks_come_before_publishing() -> None:
    text = Path(WORKFLOWS[0].parent, "wheels.yml").read_text()
    publish = text[text.index("  publish:\n") :]
    assert re.search(r"needs: \[.*\bchecks\b.*\]", publish)
    assert "run: .ci/run" in text
