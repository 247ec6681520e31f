"""What the project claims to work with, and which of it the table has not shown."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

from tests.support.records import Record

from .combinations import FULL, LOWER_BOUNDS, OF_PIP_REDIS, ONCE, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CLASSIFIERS: list[str] = PROJECT["project"]["classifiers"]
#: The versions of Python, such as "3.11".
PYTHONS = [found[1] for one in CLASSIFIERS if (found := re.fullmatch(r".* :: Python :: (3\.\d+)", one))]
#: By the names of rows: also the oldest server and the oldest dependencies.
CLAIMS = (*(f"Python {version}" for version in PYTHONS), OF_PIP_REDIS, LOWER_BOUNDS)


def passed(record: Record) -> bool:
    return record["exit code"] == 0 and record["demo"] == "passed" and record["passed"] > 0


def shown(records: Mapping[str, Record]) -> set[str]:
    """The rows that passed. A Python has passed where all tests of a Python did, in a row of any name."""
    good = {name: record for name, record in records.items() if passed(record)}
    whole = [record["python"] for record in good.values() if record["tests"] in (ONCE.text, FULL.text)]
    of_python = {name for name in good if name.startswith("Python")}
    return (good.keys() - of_python) | {f"Python {minor(version)}" for version in whole}


def minor(version: str) -> str:
    """The version without its last number: "3.13t" of "3.13.5t"."""
    return re.sub(r"^(3\.\d+)[^t]*", r"\1", version)


def not_shown(records: Mapping[str, Record]) -> list[str]:
    """The claims without a row that passed."""
    found = shown(records)
    return [claim for claim in CLAIMS if claim not in found]
