"""Cases that one test goes through. As hundreds of tests they would cost more in pytest than in the code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any


def cases(names: str, values: Iterable[Any], ids: Callable[[Any], object] = repr) -> Callable[[Any], Any]:
    """As ``pytest.mark.parametrize``, in one test. It ends with the first case that fails, and names it.

    What its fixtures made is the same for all cases.
    """
    arguments = [name.strip() for name in names.split(",")]
    table = list(values)
    assert table

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def all_cases(**fixtures: Any) -> None:
            for case in table:
                given = dict(zip(arguments, case if len(arguments) > 1 else [case], strict=True))
                try:
                    test(**fixtures, **given)
                except BaseException as error:
                    for name, value in given.items():
                        error.add_note(f"{name} = {ids(value)}")
                    raise

        signature = inspect.signature(test)
        others = [one for name, one in signature.parameters.items() if name not in arguments]
        for attribute in ("__name__", "__qualname__", "__module__", "__doc__", "pytestmark"):
            if hasattr(test, attribute):
                setattr(all_cases, attribute, getattr(test, attribute))
        all_cases.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return all_cases

    return decorate
