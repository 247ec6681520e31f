"""The list of deliberate differences is what ``make others`` reads, and its suites exist."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def others() -> ModuleType:
    spec = importlib.util.spec_from_file_location("others", ROOT / "tests" / "others" / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


def test_each_listed_difference_is_read(others: ModuleType) -> None:
    listed = others.differences()
    assert listed.keys() <= others.SUITES.keys()
    names = re.findall(r"`(\S*test_\w+)`", others.DIFFERENCES.read_text())
    assert sorted(names) == sorted(test for tests in listed.values() for test in tests)


@pytest.mark.parametrize(
    ("outcomes", "surprises"),
    [
        ({"a": "passed", "b[1]": "failed", "b[2]": "passed"}, 0),
        ({"a": "failed", "b[1]": "failed"}, 1),
        ({"a": "passed", "b": "passed"}, 1),
        ({}, 2),
    ],
)
def test_surprises_are_counted(others: ModuleType, outcomes: dict[str, str], surprises: int) -> None:
    """A failure that is not listed, a listed test that passes, and a suite without tests."""
    assert others.report("suite", outcomes, {"b": "why"}) == surprises
