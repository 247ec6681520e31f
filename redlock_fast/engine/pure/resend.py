"""The resend queue of one master: rule 7 of the contract."""

from __future__ import annotations

from collections import deque
from math import inf

from ..contract import RETRY_AFTER
from .request import PendingRequest


class ResendQueue:
    """Requests that must still arrive, oldest first. ``dropped``: number of requests that found it full.

    While the master is connected, the queue holds requests that the master answered with a transient error.
    """

    __slots__ = ("_most", "_purge_at", "_requests", "_retry_at", "dropped")

    def __init__(self, most: int) -> None:
        self._most = most
        self._requests: deque[PendingRequest] = deque()
        self._purge_at = 0.0  # no entry expires before
        self._retry_at = 0.0  # no retry of a transient error before
        self.dropped: int = 0

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: PendingRequest, now: float) -> None:
        """Adds a request that is worth resending."""
        if request.resend_until <= now:
            return
        if len(self._requests) >= self._most and now >= self._purge_at:
            self._purge(now)
        if len(self._requests) >= self._most:
            self.dropped += 1
        else:
            self._requests.append(request)
            self._purge_at = min(self._purge_at, request.resend_until)

    def _purge(self, now: float) -> None:
        self._requests = deque(request for request in self._requests if request.resend_until > now)
        self._purge_at = min((request.resend_until for request in self._requests), default=inf)

    def first(self, now: float) -> PendingRequest | None:
        """The oldest request that is still worth resending."""
        while self._requests and self._requests[0].resend_until <= now:
            self._requests.popleft()
        return self._requests[0] if self._requests else None

    def remove_first(self) -> None:
        self._requests.popleft()

    def must_retry(self, now: float) -> bool:
        """Whether to resend one request to see if the master can do it now; at most every RETRY_AFTER."""
        if not self._requests or now < self._retry_at:
            return False
        self._retry_at = now + RETRY_AFTER
        return True
