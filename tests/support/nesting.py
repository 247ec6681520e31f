"""An event loop that a task may run inside of itself, as nest_asyncio makes them."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any

#: Seconds; the longest wait of one iteration.
SLICE = 0.05


class NestingLoop(asyncio.SelectorEventLoop):
    """Its iterations may run inside of one another; asyncio's own expect to be alone."""

    _nest_patched = True  # as nest_asyncio marks its loops

    def nested(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The result of ``coroutine``; other tasks go on."""
        task = self.create_task(coroutine)
        while not task.done():
            self._run_once()
        return task.result()

    def _run_once(self) -> None:
        own: Any = self  # what asyncio.BaseEventLoop has
        wait = 0.0 if own._ready else SLICE
        if own._scheduled:
            wait = max(0.0, min(wait, own._scheduled[0]._when - self.time()))
        own._process_events(own._selector.select(wait))
        while own._scheduled and own._scheduled[0]._when <= self.time():
            timer = heapq.heappop(own._scheduled)
            timer._scheduled = False
            own._ready.append(timer)
        for _ in range(len(own._ready)):
            if own._ready and not (handle := own._ready.popleft())._cancelled:
                self._run(handle)

    def _run(self, handle: asyncio.Handle) -> None:
        task = asyncio.current_task(self)
        if task is not None:
            asyncio.tasks._leave_task(self, task)  # type: ignore[attr-defined]
        try:
            handle._run()
        finally:
            if task is not None:
                asyncio.tasks._enter_task(self, task)  # type: ignore[attr-defined]
