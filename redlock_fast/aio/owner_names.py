"""The default owner in an event loop: ``host:pid:task``.

Compiled with the types of ``aio/owner_names.pxd``, if there is a compiler.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from ..algorithm.tokens import owner_part
from ..engine.fork import in_child_of_fork
from ..locks.owner_names import default_owner, thread_owner

#: The largest number of names of tasks that are kept.
MAX_NAMES = 1024

_parts: dict[str, bytes] = {}

#: The running task of a loop. Before Python 3.12 asyncio.current_task is a function of Python around this.
_current_task: Callable[[Any], asyncio.Task[Any] | None] = (
    asyncio.current_task if sys.version_info >= (3, 12) else vars(asyncio.tasks)["_current_tasks"].get
)


class RunningTask:
    """Returns the part of a token that names the running task.

    ``loop``: the loop that runs it, or None. Without it ``asyncio`` searches the running loop, which is a
    system call for each lock before Python 3.12 (``getpid``).
    """

    __slots__ = ("loop",)

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None

    def __call__(self) -> bytes:
        task = asyncio.current_task() if self.loop is None else _current_task(self.loop)
        if task is None:
            return thread_owner()
        name = task.get_name()
        return _parts.get(name) or _cached_part(name)


def _cached_part(name: str) -> bytes:
    if len(_parts) >= MAX_NAMES:
        _parts.clear()
    part = _parts[name] = owner_part(default_owner(name))
    return part


in_child_of_fork(_parts.clear)
