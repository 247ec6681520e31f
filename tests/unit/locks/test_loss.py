"""The events of a loss are true when they are set."""

from __future__ import annotations

import asyncio
import threading

import pytest

from redlock_fast.aio.renewal import AsyncLossEvent
from redlock_fast.threads.renewal import LossEvent


@pytest.mark.parametrize(("made", "base"), [(LossEvent, threading.Event), (AsyncLossEvent, asyncio.Event)])
def test_true_when_set(made: type[LossEvent | AsyncLossEvent], base: type) -> None:
    event = made()
    assert isinstance(event, base)
    assert not event
    event.set()
    assert event
    event.clear()
    assert not event
