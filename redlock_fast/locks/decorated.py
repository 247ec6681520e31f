"""What ``synchronized`` may decorate: a function whose body ends before its call, or its await, does."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from ..errors import ConfigError


def check_plain(function: object) -> None:
    """Refuse what would run its body after the call, and so without the lock. Raises ConfigError."""
    code = _checked(function)
    if inspect.iscoroutinefunction(code):
        raise ConfigError(
            f"synchronized: {_name(function)} is an async function, its body would run without the lock: "
            "use synchronized() of AsyncFastRedlock or AsyncShardedRedlock"
        )


def check_async(function: object) -> None:
    """Refuse what cannot be awaited under the lock. Raises ConfigError."""
    code = _checked(function)
    if inspect.isfunction(code) and not inspect.iscoroutinefunction(code):
        raise ConfigError(
            f"synchronized: {_name(function)} is no async function: use synchronized() of FastRedlock or "
            "ShardedRedlock, or an `async def` that awaits it"
        )


def _checked(function: object) -> Any:
    """What a call of ``function`` runs. Refuses generator functions, classes and what cannot be called."""
    code = function
    while isinstance(code, functools.partial):
        code = code.func
    if isinstance(code, type) or not callable(code):
        raise ConfigError(f"synchronized: {_name(function)} is no function: decorate a function or a method")
    if not inspect.isroutine(code):
        code = type(code).__call__
    code = getattr(code, "__func__", code)  # of a bound method, of a staticmethod
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise ConfigError(
            f"synchronized: {_name(function)} is a generator function, its body would run without the lock: "
            "use `with client.lock(...)` or `async with client.lock(...)` inside it"
        )
    return code


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", repr(function)))
