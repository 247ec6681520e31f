"""What the decorators for jobs share: their settings, and the name of the lock of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from ..errors import ConfigError
from ..locks.options import IfTaken, Resource

T = TypeVar("T")

IfJobTaken = IfTaken | Literal["retry"]
"""What a job does while another run has its lock. "retry": its framework runs it again later."""

JobName = Resource | Callable[..., Resource] | None
"""The name of a lock, or a function of the job's arguments that returns it; None: the job's own name."""


def single_runs(
    make: Callable[..., T],
    name: JobName,
    if_taken: IfJobTaken,
    pause: Mapping[str, float | None],
    **options: Any,
) -> Callable[[Resource], T]:
    """A function that makes the single run of a name, with these options. For "retry" it raises if taken.

    ``make``: the method ``single_run`` of a client. ``pause``: the option that only "retry" has.

    Raises:
        ConfigError: An invalid name or option.
    """
    for option, value in pause.items():
        if value is not None and if_taken != "retry":
            raise ConfigError(f'{option}: only with if_taken="retry"')
    made = functools.partial(make, if_taken="raise" if if_taken == "retry" else if_taken, **options)
    if not callable(name):
        made("job" if name is None else name)
    return made


def name_of(name: JobName, own: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Resource:
    """The name of the lock for a run with these arguments. ``own``: the job's own name."""
    if callable(name):
        return name(*args, **kwargs)
    return own if name is None else name
