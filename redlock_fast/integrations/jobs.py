"""What the integrations for jobs share: checks of settings, and the name of the lock of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

from ..aio.client import AsyncFastRedlock
from ..errors import ConfigError
from ..locks.config import check_choice, number
from ..locks.options import IfTaken, Resource
from ..sharded.clients import AsyncShardedRedlock, ShardedRedlock
from ..threads.client import FastRedlock

T = TypeVar("T")

IfJobTaken = IfTaken | Literal["retry"]
"""What a job does while another run has its lock. "retry": its framework runs it again later."""

JobName = Resource | Callable[..., Resource] | None
"""The name of a lock, or a function of the job's arguments that returns it; None: the job's own name."""

CLIENTS: dict[str, tuple[type, ...]] = {
    "threads": (FastRedlock, ShardedRedlock),
    "asyncio": (AsyncFastRedlock, AsyncShardedRedlock),
}


def check_client(client: object, kind: Literal["threads", "asyncio"]) -> None:
    if not isinstance(client, CLIENTS[kind]):
        names = ", ".join(one.__name__ for one in CLIENTS[kind])
        raise ConfigError(f"client must be a client for {kind} ({names}), not {type(client).__name__}")


def single_runs(
    make: Callable[..., T],
    name: JobName,
    if_taken: IfJobTaken,
    pause: Mapping[str, float | None],
    **options: Any,
) -> Callable[[Resource], T]:
    """A function that makes the single run of a name, with these options. For "retry" it raises if taken.

    ``make``: the method ``single_run`` of a client. ``pause``: the option that only "retry" has, in seconds.

    Raises:
        ConfigError: An invalid name or option.
    """
    check_choice("if_taken", if_taken, (*get_args(IfTaken), "retry"))
    for option, value in pause.items():
        if value is None:
            continue
        number(option, value, low=0.0)
        if if_taken != "retry":
            raise ConfigError(f'{option}: only with if_taken="retry"')
    made = functools.partial(make, if_taken="raise" if if_taken == "retry" else if_taken, **options)
    made("job" if name is None or callable(name) else name)  # raises ConfigError at the decorator
    return made


def name_of(name: JobName, own: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Resource:
    """The name of the lock for a run with these arguments. ``own``: the job's own name."""
    if callable(name):
        return name(*args, **kwargs)
    return own if name is None else name
