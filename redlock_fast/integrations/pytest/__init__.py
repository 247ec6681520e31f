"""What the fixtures of the pytest plugin do; ``pytest_redlock_fast.py`` declares them.

pytest imports that module in every run, and this package when a test uses a fixture.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from ...aio.client import AsyncFastRedlock
from ...engine.contract import MAX_MASTERS
from ...errors import ConfigError
from ...locks.config import check_integer
from ...testing import MemoryMasters
from ...threads.client import FastRedlock
from .masters import FaultyMasters

__all__ = ["FaultyMasters"]

#: Times (seconds) are longer than the defaults of a client: a machine that runs tests is busy. Masters that
#: were emptied have no list in force, so with a check the first acquire would wait for one that is down.
OPTIONS: dict[str, Any] = {"node_timeout": 0.5, "connect_timeout": 10.0, "check_masters": "off"}

NO_PLUGIN = (
    "aredlock: no plugin runs this async test. Install pytest-asyncio and mark the test with "
    "@pytest.mark.asyncio, or install anyio and mark it with @pytest.mark.anyio"
)
NOT_ASYNCIO = "aredlock needs asyncio, not {}: let the fixture anyio_backend return 'asyncio'"


class _CleanAfterEachTest:
    """Registered when the masters are started: runs without masters pay nothing."""

    def __init__(self, masters: FaultyMasters) -> None:
        self._masters = masters

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None]:
        try:
            return (yield)  # clients are closed, so they write nothing more
        finally:
            if len(self._masters):  # not after the last test, which ends the masters
                self._masters.clear()


@contextlib.contextmanager
def masters(config: pytest.Config) -> Iterator[FaultyMasters]:
    """The masters of this run, or of this worker of xdist."""
    try:
        fleet = FaultyMasters(_number_of_masters(config), server=_option(config, "server"))
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    with fleet:
        plugin = _CleanAfterEachTest(fleet)
        config.pluginmanager.register(plugin)
        try:
            yield fleet
        finally:
            config.pluginmanager.unregister(plugin)


def memory_masters(config: pytest.Config) -> MemoryMasters:
    """New masters in memory."""
    try:
        return MemoryMasters(_number_of_masters(config))
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None


def _number_of_masters(config: pytest.Config) -> int:
    text = _option(config, "masters")
    name = "--redlock-masters (redlock_masters in the ini file)"
    return check_integer(name, int(text) if text.isdecimal() else text, 1, MAX_MASTERS)


def _option(config: pytest.Config, name: str) -> str:
    """An option of the command line, else of the ini file."""
    return str(config.getoption(f"redlock_{name}") or config.getini(f"redlock_{name}"))


@contextlib.contextmanager
def client(config: pytest.Config, urls: list[str], options: dict[str, Any]) -> Iterator[FastRedlock]:
    """A client that is connected to all masters."""
    with FastRedlock(urls, **_options(config, options)) as one:
        one.connect()
        deadline = time.monotonic() + one._core.connect_timeout
        while any(master.state != "connected" for master in one.health()) and time.monotonic() < deadline:
            time.sleep(0.001)
        yield one


@contextlib.contextmanager
def async_client(
    request: pytest.FixtureRequest, urls: list[str], options: dict[str, Any]
) -> Iterator[AsyncFastRedlock]:
    """A client that belongs to the first event loop that awaits it."""
    _check_runs_on_asyncio(request)
    one = AsyncFastRedlock(urls, **_options(request.config, options))
    try:
        yield one
    finally:
        binding = one._core.bound
        if binding is None or binding.loop.is_closed():
            asyncio.run(one.close())
        else:  # between the test and the end of its loop
            binding.loop.run_until_complete(one.close())


def _options(config: pytest.Config, options: dict[str, Any]) -> dict[str, Any]:
    return {**OPTIONS, "engine": _option(config, "engine"), **options}


def _check_runs_on_asyncio(request: pytest.FixtureRequest) -> None:
    """Fail a test that no plugin runs on asyncio. A test that is no coroutine may call ``asyncio.run``."""
    item = request.node
    if "anyio_backend" in request.fixturenames:
        backend = request.getfixturevalue("anyio_backend_name")
        if backend != "asyncio":
            pytest.fail(NOT_ASYNCIO.format(backend), pytrace=False)
    elif type(item) is pytest.Function and inspect.iscoroutinefunction(item.obj):
        pytest.fail(NO_PLUGIN, pytrace=False)  # other plugins replace the class of the item
