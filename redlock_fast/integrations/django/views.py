"""The decorator of views."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.db import connections, transaction

from ...aio.unbroken import run_to_its_end
from ...errors import ConfigError
from ...locks.decorated import check_plain
from ...locks.options import Resource
from ..names import name_of
from .clients import async_client, client

View = TypeVar("View", bound=Callable[..., Any])


def synchronized(
    resource: Resource | Callable[..., Resource], ttl: float | None = None, **options: Any
) -> Callable[[View], View]:
    """Decorator: the view, sync or async, runs only while it holds the lock on ``resource``.

    ``resource``: text with parameters of the path, such as ``"orders:{order_id}"``, or a function of the
    request and the view's other arguments. ``ttl`` in seconds and ``options``: those of
    [`FastRedlock.lock`][]. The transaction of ``ATOMIC_REQUESTS`` begins and ends inside the lock, so the
    next holder sees what was committed. Django cancels an async view when its client disconnects: the view
    then keeps the lock and runs to its end, at most until the lease ends, because the threads of
    ``sync_to_async``, and so each query, go on in any case. A streaming body runs without the lock. For a
    class decorate ``as_view()``.

    Examples:
        >>> @synchronized("orders:{order_id}", timeout=0)
        ... def ship(request, order_id): ...

    Raises:
        ConfigError: A bad ``resource``, or a generator function; at a request, a path without the
            parameters of ``resource``, a bad option, a sync view that returns a coroutine, or a transaction
            around the lock on a database with ``ATOMIC_REQUESTS``.
        Contended: At a request: another holder has the lock.
        QuorumUnavailable: At a request: too few masters can be reached.
        LockLost: At a request: the lease ended before the view returned.
    """
    name = name_of(resource)

    def decorate(view: View) -> View:
        locked: View = _async_view(view) if iscoroutinefunction(view) else _sync_view(view)
        return locked

    def _async_view(view: Any) -> Any:
        @wraps(view)
        async def locked(request: Any, *args: Any, **kwargs: Any) -> Any:
            async with async_client().lock(name(request, *args, **kwargs), ttl, **options) as lock:
                return await run_to_its_end(view(request, *args, **kwargs), lock)

        return locked

    def _sync_view(view: Any) -> Any:
        check_plain(view, "synchronized")
        inner = _atomic(view)

        @wraps(view)
        def locked(request: Any, *args: Any, **kwargs: Any) -> Any:
            with client().lock(name(request, *args, **kwargs), ttl, **options):
                response = inner(request, *args, **kwargs)
                if inspect.isawaitable(response):  # its body would run without the lock
                    getattr(response, "close", lambda: None)()
                    raise ConfigError(f"synchronized: {view!r} returns a coroutine, and is no async function")
                return response

        # Django looks here for the databases whose transaction does not go around the view.
        vars(locked)["_non_atomic_requests"] = set(connections)
        return locked

    return decorate


def _atomic(view: Any) -> Any:
    """``view`` in the transactions of ``ATOMIC_REQUESTS``."""
    without = getattr(view, "_non_atomic_requests", ())
    for alias, settings in connections.settings.items():
        if settings["ATOMIC_REQUESTS"] and alias not in without:
            view = _outermost(alias)(view)
    return view


@contextmanager
def _outermost(alias: str) -> Iterator[None]:
    """A transaction that commits when the block ends, inside the lock: no other one is around it.

    Raises ConfigError if one is. The transactions of Django's TestCase do not count.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(transaction.atomic(using=alias, durable=True))
        except RuntimeError as error:
            raise ConfigError(
                f"synchronized: a transaction on {alias!r} is around the lock and commits after the release: "
                "decorate what the URL names, such as as_view(), and no method or inner function"
            ) from error
        yield
