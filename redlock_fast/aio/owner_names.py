"""The default owner in an event loop: ``host:pid:task``."""

from __future__ import annotations

import os
from asyncio import current_task

from ..algorithm.tokens import owner_part
from ..locks.owner_names import default_owner, thread_owner

#: The largest number of names of tasks that are kept.
MAX_NAMES = 1024

_parts: dict[str, bytes] = {}


def task_owner() -> bytes:
    """The part of a token that names the running task."""
    task = current_task()
    if task is None:
        return thread_owner()
    name = task.get_name()
    return _parts.get(name) or _cached_part(name)


def _cached_part(name: str) -> bytes:
    if len(_parts) >= MAX_NAMES:
        _parts.clear()
    part = _parts[name] = owner_part(default_owner(name))
    return part


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_parts.clear)
