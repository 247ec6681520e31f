"""One turn of one library: runs a workload and prints the result as one JSON object.

    python driver.py '{"library": "redlock-fast", "workload": "threads", "urls": [...], ...}'

It runs in the environment of that library, and imports nothing else but the standard library.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import sys
from typing import Any

import libraries
from workloads import WORKLOADS


def main() -> int:
    job = json.loads(sys.argv[1])
    name, workload = job.pop("library"), job.pop("workload")
    openers = libraries.ASYNCIO if workload == "tasks" else libraries.THREADS
    opener: Any = functools.partial(openers[name], job.pop("urls"), **job.pop("options", {}))
    result = WORKLOADS[workload](opener, **job)
    if not (result["samples"] or result["numbers"]):
        why = f", {result['failed']} failures: {result['error']}" if result["failed"] else ""
        print(f"no lock within {job['seconds']:g} s{why}", file=sys.stderr)
        return 1
    result["info"]["versions"] = versions(name, "redis", "hiredis")
    json.dump(result, sys.stdout)
    return 0


def versions(*packages: str) -> dict[str, str]:
    """The versions of the installed ones of ``packages``."""
    found = {}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


if __name__ == "__main__":
    sys.exit(main())
