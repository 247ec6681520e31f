"""Translates the errors of this library into those of another library."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

#: For each class of this library's errors: a function that makes the other library's error.
Dictionary = dict[type[Exception], Callable[[Any], Exception]]


@contextlib.contextmanager
def translated(errors: Dictionary) -> Iterator[None]:
    """Raise the other library's error in place of an error that the block raises."""
    try:
        yield
    except tuple(errors) as error:
        raise next(make for kind, make in errors.items() if isinstance(error, kind))(error) from error
