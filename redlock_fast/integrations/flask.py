"""Locks in Flask: an extension with one client for each process, a decorator of views, HTTP answers.

    from redlock_fast.integrations.flask import Redlock

    redlock = Redlock()
    app.config["REDLOCK_FAST"] = {"masters": masters, "timeout": 2.0}
    redlock.init_app(app)

    @app.post("/orders/<order_id>/ship")
    @redlock.synchronized("orders:{order_id}")
    def ship(order_id): ...

See docs/recipes/web.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, Unpack

from .. import FastRedlock, Lock
from ..errors import ConfigError, needs
from ..locks.decorated import check_plain
from ..locks.options import LockOptions, Resource
from .names import name_of
from .refusals import ERRORS, refusal

with needs("flask", "flask>=3"):
    from flask import Flask, Response, current_app, jsonify

P = ParamSpec("P")
R = TypeVar("R")

#: The key in ``app.config``, a dict with ``masters`` and settings, and in ``app.extensions``, the client.
KEY = "REDLOCK_FAST"


class Redlock:
    """The extension. ``Redlock(app)`` is ``Redlock()`` and ``init_app(app)``.

    ``app.config["REDLOCK_FAST"]`` is a dict: ``masters``, and the settings of [`FastRedlock`][] in seconds.
    The client connects at its first use, in the process that uses it. So ``gunicorn --preload`` needs no
    hook: each worker has its own connections. ``init_app`` also registers answers for errors: Contended is
    409 and QuorumUnavailable 503, both with Retry-After; LockLost is 500.

    Examples:
        >>> redlock = Redlock(app)
        >>> with redlock.client.lock("orders:42"):
        ...     ship("orders:42")
    """

    def __init__(self, app: Flask | None = None) -> None:
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Make the client of ``app``; no I/O. Raises ConfigError for missing or bad settings."""
        settings = app.config.get(KEY)
        if not isinstance(settings, dict):
            raise ConfigError(f'app.config["{KEY}"] must be a dict: masters, and settings of FastRedlock')
        app.extensions[KEY] = FastRedlock(**settings)
        for kind in ERRORS:
            app.register_error_handler(kind, _answer)

    @property
    def client(self) -> FastRedlock:
        """The client of the current application. Raises ConfigError without ``init_app``."""
        client: FastRedlock | None = current_app.extensions.get(KEY)
        if client is None:
            raise ConfigError("no client: call init_app(app)")
        return client

    def synchronized(
        self,
        resource: Resource | Callable[..., Resource],
        ttl: float | None = None,
        **options: Unpack[LockOptions[Lock]],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorator, below the route: the view runs only while it holds the lock on ``resource``.

        ``resource``: text with parameters of the path, such as ``"orders:{order_id}"``, or a function of
        the view's arguments. ``ttl`` in seconds and ``options``: those of [`FastRedlock.lock`][]. The view
        may be async. A streaming body runs without the lock.

        Examples:
            >>> @app.post("/orders/<order_id>/ship")
            ... @redlock.synchronized("orders:{order_id}", timeout=0)
            ... def ship(order_id): ...

        Raises:
            ConfigError: A bad ``resource``, or a generator function; at a request, a path without the
                parameters of ``resource``, or a bad option.
            Contended: At a request: another holder has the lock.
            QuorumUnavailable: At a request: too few masters can be reached.
            LockLost: At a request: the lease ended before the view returned.
        """
        name = name_of(resource)

        def decorate(view: Callable[P, R]) -> Callable[P, R]:
            if not inspect.iscoroutinefunction(view):
                check_plain(view, "synchronized")

            @wraps(view)
            def locked(*args: P.args, **kwargs: P.kwargs) -> R:
                with self.client.lock(name(*args, **kwargs), ttl, **options):
                    result: R = current_app.ensure_sync(view)(*args, **kwargs)
                    return result

            return locked

        return decorate


def _answer(error: Exception) -> tuple[Response, int, dict[str, str]]:
    status, detail, headers = refusal(error, current_app.extensions[KEY])
    return jsonify(detail=detail), status, headers


__all__: list[str] = ["Redlock"]
