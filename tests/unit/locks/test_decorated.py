"""What ``synchronized`` refuses to decorate: its body would run without the lock."""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from redlock_fast import AsyncFastRedlock, AsyncShardedRedlock, ConfigError, FastRedlock, ShardedRedlock
from redlock_fast.compat import pottery

URLS = [f"redis://10.0.0.{number}" for number in range(1, 4)]
Decorate = Callable[[Any], Callable[..., Any]]


def plain() -> None: ...


async def coroutine() -> None: ...


def generator() -> Iterator[None]:
    yield


async def async_generator() -> AsyncIterator[None]:
    yield


class Plain:
    def __call__(self) -> None: ...

    def method(self) -> None: ...

    @staticmethod
    def static() -> None: ...


class Asynchronous:
    async def __call__(self) -> None: ...

    async def method(self) -> None: ...

    @staticmethod
    async def static() -> None: ...


class Generator:
    def __call__(self) -> Iterator[None]:
        yield

    def method(self) -> Iterator[None]:
        yield


class AsyncGenerator:
    async def __call__(self) -> AsyncIterator[None]:
        yield


PLAIN = [plain, lambda: None, Plain(), Plain().method, Plain.method, Plain.static, vars(Plain)["static"]]
ASYNCHRONOUS = [
    coroutine,
    Asynchronous(),
    Asynchronous().method,
    Asynchronous.method,
    Asynchronous.static,
    vars(Asynchronous)["static"],
]
GENERATORS = [generator, async_generator, Generator(), Generator().method, AsyncGenerator()]
NO_FUNCTIONS: list[Any] = [Plain, Asynchronous, int, None, "name", 5, classmethod(plain)]


def named(function: Any) -> str:
    """The same in every process of a run: no address."""
    return re.sub(r" (at 0x|id=)[^>]+", "", repr(function))


def partials(functions: list[Any]) -> list[Any]:
    """Each as it is, and as a partial of a partial."""
    return [*functions, *(functools.partial(functools.partial(function)) for function in functions)]


@pytest.fixture(params=["client", "sharded", "of the arguments", "pottery"])
def decorate(request: pytest.FixtureRequest) -> Decorate:
    one = FastRedlock(URLS)
    by_name: dict[str, Decorate] = {
        "client": one.synchronized("r"),
        "sharded": ShardedRedlock([URLS]).synchronized("r"),
        "of the arguments": one.synchronized(lambda: "r"),
        "pottery": pottery.synchronize(key="r", masters=set(URLS)),
    }
    return by_name[request.param]


@pytest.fixture(params=["client", "sharded", "of the arguments"])
def decorate_async(request: pytest.FixtureRequest) -> Decorate:
    one = AsyncFastRedlock(URLS)
    by_name: dict[str, Callable[[Any], Callable[..., Coroutine[Any, Any, Any]]]] = {
        "client": one.synchronized("r"),
        "sharded": AsyncShardedRedlock([URLS]).synchronized("r"),
        "of the arguments": one.synchronized(lambda: "r"),
    }
    return by_name[request.param]


@pytest.mark.parametrize("function", partials(ASYNCHRONOUS), ids=named)
def test_threads_refuse_async_functions(decorate: Decorate, function: Any) -> None:
    with pytest.raises(ConfigError, match="AsyncFastRedlock or AsyncShardedRedlock"):
        decorate(function)


@pytest.mark.parametrize("function", partials(PLAIN), ids=named)
def test_asyncio_refuses_plain_functions(decorate_async: Decorate, function: Any) -> None:
    with pytest.raises(ConfigError, match=r"of FastRedlock or ShardedRedlock"):
        decorate_async(function)


@pytest.mark.parametrize("function", partials(GENERATORS), ids=named)
def test_both_refuse_generators(decorate: Decorate, decorate_async: Decorate, function: Any) -> None:
    for refuse in (decorate, decorate_async):
        with pytest.raises(ConfigError, match=r"generator function.*with client\.lock"):
            refuse(function)


@pytest.mark.parametrize("function", NO_FUNCTIONS, ids=named)
def test_both_refuse_what_is_no_function(decorate: Decorate, decorate_async: Decorate, function: Any) -> None:
    for refuse in (decorate, decorate_async):
        with pytest.raises(ConfigError, match="decorate a function"):
            refuse(function)


def test_the_message_names_the_function(decorate: Decorate, decorate_async: Decorate) -> None:
    for refuse, function in ((decorate, coroutine), (decorate, Asynchronous.method), (decorate_async, plain)):
        with pytest.raises(ConfigError, match=function.__qualname__):
            refuse(function)


@pytest.mark.parametrize(
    "function", [*partials(PLAIN), print, "".join, Mock(), functools.cache(plain)], ids=named
)
def test_threads_take_plain_functions(decorate: Decorate, function: Any) -> None:
    assert callable(decorate(function))


@pytest.mark.parametrize("function", partials(ASYNCHRONOUS), ids=named)
def test_asyncio_takes_async_functions(decorate_async: Decorate, function: Any) -> None:
    assert callable(decorate_async(function))
