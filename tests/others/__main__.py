"""``python -m tests.others FOLDER [NAME ...]``: the lock tests of other libraries, run against the drop-ins.

FOLDER: the libraries' source archives, or what they unpack to; ``--download`` gets the archives with pip.
Each suite runs in one environment, FOLDER/environment, with a server on port 6379, which some of them have in
their code. differences.md beside this file lists the tests that must fail, and why. Any other failure is an
error, and so is a listed test that passes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import redis

from redlock_fast.embedded import find_server

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DIFFERENCES = HERE / "differences.md"
URL = "redis://localhost:6379"
TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "redis>=8", "hiredis")


@dataclass(frozen=True)
class Suite:
    """``archive``: the name of the source archive. ``tests``: arguments of pytest. ``needs``: packages."""

    archive: str
    tests: tuple[str, ...]
    needs: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


SUITES = {
    "redis-py": Suite("redis", ("tests/test_lock.py", "tests/test_asyncio/test_lock.py"), ("numpy",)),
    "redlock-py": Suite("redlock-py", ("tests/test_redlock.py",)),
    "redlock": Suite("redlock", ("tests/test_lock.py", "tests/test_factory.py"), ("mock",)),
    "pottery": Suite(
        "pottery", ("tests/test_redlock.py", "tests/test_aioredlock.py"), ("mmh3", "typing_extensions")
    ),
    "django-redis": Suite(
        "django_redis",
        ("tests/test_backend.py", "-k", "lock and sqlite and not sqlite_"),
        ("django", "pytest-xdist", "pytest-mock"),
        (("REDLOCK_FAST_URL", f"{URL}/1"),),
    ),
    "dogpile.cache": Suite(
        "dogpile_cache",
        ("tests/cache/test_redis_backend.py", "-o", "python_classes=*Test", "-k", "Mutex or Async"),
        ("stevedore", "decorator"),
        (("DOGPILE_REDIS_PORT", "6379"),),
    ),
    "tooz": Suite(
        "tooz",
        ("tooz/tests/test_coordination.py", "-k", "lock"),
        ("tooz[etcd3gw,redis]", "testtools", "fixtures", "ddt", "pbr", "sysv_ipc", "pymemcache"),
        (("TOOZ_TEST_URL", URL),),
    ),
    "celery-redbeat": Suite(
        "celery_redbeat",
        ("tests/test_scheduler.py", "-k", "lock or Lock"),
        ("celery", "fakeredis", "tenacity", "python-dateutil", "pytz"),
    ),
    "aiogram": Suite(
        "aiogram",
        ("tests/test_fsm/storage/test_isolation.py", "--redis", URL),
        ("aiogram", "pymongo", "motor"),
    ),
}


class Failed(Exception):
    """A message for the terminal."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.others", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SUITES))
    parser.add_argument("--download", action="store_true", help="get missing archives with pip")
    parser.add_argument("-v", "--verbose", action="store_true", help="show the output of pytest")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    names = options.names or list(SUITES)
    listed = differences()
    python = environment(options.folder, names)
    unexpected = 0
    with server():
        for name in names:
            source = source_of(SUITES[name], options.folder, options.download)
            if source is None:
                print(f"{name:16} not run: no {SUITES[name].archive}-*.tar.gz in {options.folder}")
                continue
            unexpected += report(name, run(name, source, python, options.verbose), listed.get(name, {}))
    return unexpected > 0


def differences() -> dict[str, dict[str, str]]:
    """For each suite the tests that must fail, with the reason: the tables of differences.md."""
    found: dict[str, dict[str, str]] = {}
    tests: dict[str, str] = {}
    for line in DIFFERENCES.read_text().splitlines():
        if line.startswith("## "):
            tests = found.setdefault(line[3:].split()[0], {})
        elif row := re.fullmatch(r"\| (`.*`) \| (.*) \|", line):
            tests.update(dict.fromkeys(re.findall(r"`(\S+)`", row[1]), row[2]))
    return found


def environment(folder: Path, names: list[str]) -> Path:
    """The interpreter of an environment that has the tools and what the suites need."""
    python = folder / "environment" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "environment", with_pip=True)
    needs = sorted({*TOOLS, *(need for name in names for need in SUITES[name].needs)})
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--quiet", *needs], check=True)
    return python


def source_of(suite: Suite, folder: Path, download: bool) -> Path | None:
    """The unpacked source; None: it is not at hand."""
    pattern = f"{suite.archive}-[0-9]*"
    if download and not any(folder.glob(pattern)):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", suite.archive]
        subprocess.run([*pip, "--dest", folder, suite.archive], check=False)
    for archive in folder.glob(f"{pattern}.tar.gz"):
        if not archive.with_name(archive.name.removesuffix(".tar.gz")).exists():
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
    return next((found for found in sorted(folder.glob(pattern)) if found.is_dir()), None)


@contextlib.contextmanager
def server() -> Iterator[None]:
    """A server on port 6379. Raises Failed if the port is in use."""
    client = redis.Redis.from_url(URL, retry=None)
    with contextlib.suppress(redis.ConnectionError):
        client.ping()
        raise Failed("port 6379 is in use: the suites delete all keys, so they need a server of their own")
    with tempfile.TemporaryDirectory() as folder:
        command = [find_server("auto"), "--port", "6379", "--save", "", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 30
            while time.monotonic() < until:
                with contextlib.suppress(redis.ConnectionError):
                    client.ping()
                    break
                time.sleep(0.05)
            client.config_set("maxmemory-policy", "noeviction")
            yield
        finally:
            process.terminate()
            process.wait()
            client.close()


def run(name: str, source: Path, python: Path, verbose: bool) -> dict[str, str]:
    """The outcome of each test of a suite."""
    suite = SUITES[name]
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results"
        settings = {
            **os.environ, "REDLOCK_FAST_URL": URL, **dict(suite.environment), "REDLOCK_FAST_SUITE": name,
            "REDLOCK_FAST_RESULTS": str(results),
            "PYTHONPATH": os.pathsep.join(map(str, (source, HERE, ROOT))),
        }  # fmt: skip
        nothing = Path(scratch) / "pytest.ini"
        nothing.write_text("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
        command = [python, "-m", "pytest", "-c", nothing, "--rootdir", source, "-p", "put_in_place"]
        command += ["-p", "no:cacheprovider", "--timeout", "60", "--tb", "native", "-q"]
        command += suite.tests
        done = subprocess.run(command, cwd=source, env=settings, capture_output=True, text=True)
        if verbose or not results.exists():
            print(done.stdout, done.stderr)
        lines = results.read_text().splitlines() if results.exists() else []
    return dict(json.loads(line) for line in lines)


def report(name: str, outcomes: dict[str, str], listed: dict[str, str]) -> int:
    """Print what happened. Returns the number of surprises."""
    expected = {test for test in outcomes if without_parameters(test) in listed}
    failed = {test for test, outcome in outcomes.items() if outcome == "failed"}
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    missing = listed.keys() - {without_parameters(test) for test in failed}
    wrong = sorted(failed - expected)
    skipped = len(outcomes) - passed - len(failed)
    print(
        f"{name:16} {passed} passed, {len(failed & expected)} differ on purpose, {len(wrong)} failed, "
        f"{skipped} skipped"
    )
    for test in wrong:
        print(f"    failed: {test}")
    for test in sorted(missing):
        print(f"    listed in {DIFFERENCES.name}, but did not fail: {test}")
    if not outcomes:
        print("    no test ran")
    return len(wrong) + len(missing) + (not outcomes)


def without_parameters(test: str) -> str:
    return test.partition("[")[0]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(str(failure))
