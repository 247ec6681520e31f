"""Our errors as those of another library."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

#: By our class: what makes the other library's error of it.
Dictionary = dict[type[Exception], Callable[[Any], Exception]]


@contextlib.contextmanager
def translated(errors: Dictionary) -> Iterator[None]:
    """Raises what an error of ours, raised in this block, is called there."""
    try:
        yield
    except tuple(errors) as error:
        raise errors[type(error)](error) from error
