"""The name of a request's lock, from the parameters in the path of its URL."""

from __future__ import annotations

from collections.abc import Callable
from string import Formatter
from typing import Any

from ..errors import ConfigError
from ..locks.options import Resource


def name_of(resource: Resource | Callable[..., Resource]) -> Callable[..., Resource]:
    """A function that returns the name of the lock for the arguments of a view.

    ``resource``: bytes; or text with parameters in braces, such as ``"orders:{order_id}"``, which the view
    gets as keyword arguments; or a function of all arguments of the view. Raises ConfigError for other
    values and for text with bad braces; the result raises ConfigError if the view has no such parameter.
    """
    if callable(resource):
        return resource
    if isinstance(resource, bytes):
        return lambda *_, **parameters: resource
    if not isinstance(resource, str):
        raise ConfigError(f"resource must be str, bytes or a function, not {type(resource).__name__}")
    try:
        fields = [field for _, field, _, _ in Formatter().parse(resource) if field is not None]
    except ValueError as error:
        raise ConfigError(f"resource: {resource!r}: {error}; write {{{{ or }}}} for a brace") from None
    bad = [field for field in fields if not field.isidentifier()]
    if bad:
        raise ConfigError(f"resource: {resource!r}: {bad[0]!r} is no name of a parameter")

    def fill(*_: Any, **parameters: Any) -> str:
        missing = [field for field in fields if field not in parameters]
        if missing:
            known = ", ".join(parameters) or "none"
            raise ConfigError(f"resource: {resource!r}: the path has no {missing[0]!r}; it has: {known}")
        return resource.format_map(parameters)

    return fill
