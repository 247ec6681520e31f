"""The clients of a Django process, made from ``settings.REDLOCK_FAST`` at their first use."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from ... import AsyncFastRedlock, FastRedlock
from ...errors import ConfigError

SETTING = "REDLOCK_FAST"

#: Each running event loop has a client. Single operations of a dict need no mutex.
_of_loop: dict[asyncio.AbstractEventLoop, AsyncFastRedlock] = {}


def client_settings() -> dict[str, Any]:
    """``settings.REDLOCK_FAST``. Raises ConfigError if it is no dict."""
    given = getattr(settings, SETTING, None)
    if not isinstance(given, dict):
        raise ConfigError(f"settings.{SETTING} must be a dict: masters, and settings of FastRedlock")
    return given


@functools.cache
def client() -> FastRedlock:
    """The client of this process, for threads; no I/O. A forked worker gets its own connections.

    Examples:
        >>> with client().lock("orders:42", timeout=2.0):
        ...     ship("orders:42")

    Raises:
        ConfigError: Missing or bad settings.
    """
    return FastRedlock(**client_settings())


def async_client() -> AsyncFastRedlock:
    """The client of the running event loop; no I/O.

    Under WSGI each async view runs in an event loop of its own. Such a loop takes over the client, with its
    connections, of a loop that is closed.

    Examples:
        >>> async with async_client().lock("orders:42", timeout=2.0):
        ...     await ship("orders:42")

    Raises:
        ConfigError: Missing or bad settings.
    """
    loop = asyncio.get_running_loop()
    found = _of_loop.get(loop)
    if found is None:
        closed = (_of_loop.pop(other, None) for other in list(_of_loop) if other.is_closed())
        found = next(filter(None, closed), None) or AsyncFastRedlock(**client_settings())
        _of_loop[loop] = found
    return found


def _forget(*, setting: str, **_: Any) -> None:
    """A test has changed the settings: the next calls make new clients."""
    if setting == SETTING:
        client.cache_clear()
        _of_loop.clear()


setting_changed.connect(_forget)
