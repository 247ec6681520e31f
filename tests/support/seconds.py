"""Where a run spent its time: seconds for each directory, and for the files that took longest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

#: A shorter run prints nothing. In seconds, of all workers together.
LONG = 60.0
FILES = 10


def table(reporter: pytest.TerminalReporter) -> Iterator[str]:
    """The lines. Set-up, call and tear-down count, and the workers' seconds are added up."""
    files, tests = Counter[str](), Counter[str]()
    for reports in reporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                path = report.nodeid.partition("::")[0]
                files[path] += report.duration
                tests[path] += report.when == "call"
    if files.total() < LONG:
        return
    folders, counts = Counter[str](), Counter[str]()
    for path in files:
        folder = str(PurePosixPath(path).parent)
        folders[folder] += files[path]
        counts[folder] += tests[path]
    yield f"{files.total():8.1f} s in {tests.total()} tests"
    for folder, seconds in folders.most_common():
        yield f"{seconds:8.1f} s in {counts[folder]:5} of {folder}"
    for path, seconds in files.most_common(FILES):
        yield f"{seconds:8.1f} s in {tests[path]:5} of {path}"
