"""The middleware that answers requests whose lock was not acquired, or was lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase, JsonResponse

from ..refusals import ERRORS, refusal
from .clients import client


class RedlockMiddleware:
    """Turns errors of views into responses of JSON, for sync and async views.

    Contended is 409 and QuorumUnavailable 503, both with Retry-After; LockLost is 500.
    """

    sync_capable: bool = True
    async_capable: bool = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """The response of the application, or its coroutine."""
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        """The response for an error of a lock; None for other errors."""
        if not isinstance(error, ERRORS):
            return None
        status, detail, headers = refusal(error, client())
        return JsonResponse({"detail": detail}, status=status, headers=headers)
