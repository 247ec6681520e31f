"""Checks of functions: the body of a decorated one must end before the call, or the await, ends."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..errors import ConfigError

L = TypeVar("L")


def lock_of_call(
    lock_of: Callable[..., L], resource: Any, ttl: float | None, options: Mapping[str, Any]
) -> Callable[..., L]:
    """Makes the lock of each call of a decorated function, from the arguments of the call.

    ``lock_of``: the method ``lock`` of a client. ``resource``: the name, or a function of the arguments.
    Raises ConfigError for bad settings: at the decorator, not at the first call.
    """
    named = resource if callable(resource) else None
    lock_of("name" if named else resource, ttl, **options)
    return lambda *args, **kwargs: lock_of(named(*args, **kwargs) if named else resource, ttl, **options)


def check_plain(function: object, decorator: str) -> None:
    """Raise ConfigError for a function whose body runs after the call, and so without the lock."""
    code = _checked(function, decorator)
    if inspect.iscoroutinefunction(code):
        raise ConfigError(
            f"{decorator}: {_name(function)} is an async function, its body would run without the lock: "
            f"use {decorator}() of AsyncFastRedlock or AsyncShardedRedlock"
        )


def check_callback(function: object, option: str) -> None:
    """Raise ConfigError for a callback of threads whose call only makes a coroutine."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        raise ConfigError(f"{option} must be a plain function: only AsyncFastRedlock awaits a coroutine")


def check_async(function: object, decorator: str) -> None:
    """Raise ConfigError for a function that cannot be awaited under the lock."""
    code = _checked(function, decorator)
    if inspect.isfunction(code) and not inspect.iscoroutinefunction(code):
        raise ConfigError(
            f"{decorator}: {_name(function)} is no async function: use {decorator}() of FastRedlock or "
            "ShardedRedlock, or an `async def` that awaits it"
        )


def _checked(function: object, decorator: str) -> Any:
    """The code that a call of ``function`` runs.

    Raises ConfigError for generator functions, classes and objects that cannot be called.
    """
    code = function
    while isinstance(code, functools.partial):
        code = code.func
    if isinstance(code, type) or not callable(code):
        raise ConfigError(f"{decorator}: {_name(function)} is no function: decorate a function or a method")
    if not inspect.isroutine(code):
        code = type(code).__call__
    code = getattr(code, "__func__", code)  # of a bound method, of a staticmethod
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise ConfigError(
            f"{decorator}: {_name(function)} is a generator function, its body would run without the lock: "
            "use `with client.lock(...)` or `async with client.lock(...)` inside it"
        )
    return code


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", repr(function)))
