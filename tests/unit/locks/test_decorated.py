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


def refuses(decorate: Decorate, functions: list[Any], why: str) -> None:
    for function in functions:
        with pytest.raises(ConfigError) as caught:
            pytest.fail(f"it takes {named(decorate(function))}")
        assert re.search(why, str(caught.value)), named(function)


def takes(decorate: Decorate, functions: list[Any]) -> None:
    for function in functions:
        assert callable(decorate(function)), named(function)


def test_threads_refuse_async_functions(decorate: Decorate) -> None:
    refuses(decorate, partials(ASYNCHRONOUS), "AsyncFastRedlock or AsyncShardedRedlock")


def test_asyncio_refuses_plain_functions(decorate_async: Decorate) -> None:
    refuses(decorate_async, partials(PLAIN), r"of FastRedlock or ShardedRedlock")


def test_both_refuse_generators(decorate: Decorate, decorate_async: Decorate) -> None:
    for one in (decorate, decorate_async):
        refuses(one, partials(GENERATORS), r"generator function.*with client\.lock")


def test_both_refuse_what_is_no_function(decorate: Decorate, decorate_async: Decorate) -> None:
    for one in (decorate, decorate_async):
        refuses(one, NO_FUNCTIONS, "decorate a function")


def test_the_message_names_the_function(decorate: Decorate, decorate_async: Decorate) -> None:
    for one, function in ((decorate, coroutine), (decorate, Asynchronous.method), (decorate_async, plain)):
        refuses(one, [function], function.__qualname__)


def test_threads_take_plain_functions(decorate: Decorate) -> None:
    takes(decorate, [*partials(PLAIN), print, "".join, Mock(), functools.cache(plain)])


def test_asyncio_takes_async_functions(decorate_async: Decorate) -> None:
    takes(decorate_async, partials(ASYNCHRONOUS))
