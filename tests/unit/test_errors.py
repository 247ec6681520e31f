"""Every exception of the package survives pickle, copy and the way back from another process."""

from __future__ import annotations

import copy
import importlib
import multiprocessing
import pickle
import pkgutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import redis
from support.failing_job import fail

import redlock_fast
from redlock_fast import Contended, MasterError, QuorumUnavailable
from redlock_fast.cli.signals import Stopped
from redlock_fast.compat.pottery import PrimitiveError
from redlock_fast.compat.redlock_py import MultipleRedlockException

CAUSES = [MasterError("10.0.0.1:6379", "not connected"), MasterError("10.0.0.2:6379", "LOADING")]
#: For each class with an ``__init__`` of its own, what its instances are made from.
ARGUMENTS: dict[type, tuple[Any, ...]] = {
    Contended: ("held", ["10.0.0.1:6379"]),
    MasterError: ("10.0.0.1:6379", "not connected"),
    MultipleRedlockException: (CAUSES, "no quorum"),
    PrimitiveError: ("key", frozenset({"redis://10.0.0.1"}), CAUSES),
    QuorumUnavailable: ("no quorum", CAUSES),
    Stopped: (15,),
}
COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


def exceptions() -> Iterator[type[BaseException]]:
    """All classes of exceptions that are defined in the package."""
    for module in pkgutil.walk_packages(redlock_fast.__path__, "redlock_fast."):
        if not module.name.endswith(("__main__", "_native")):
            for value in vars(importlib.import_module(module.name)).values():
                defined_here = getattr(value, "__module__", "") == module.name
                if defined_here and isinstance(value, type) and issubclass(value, BaseException):
                    yield value


EXCEPTIONS = sorted(exceptions(), key=lambda kind: (kind.__module__, kind.__name__))


def example(kind: type[BaseException]) -> BaseException:
    """An instance with a note."""
    maker = next(base for base in kind.__mro__ if "__init__" in vars(base))
    error = kind(*(("text",) if maker.__module__ == "builtins" else ARGUMENTS[maker]))
    error.add_note("a note")
    return error


def content(value: Any) -> Any:
    """What an error says, in a form that can be compared."""
    if isinstance(value, BaseException):
        return type(value), str(value), content(value.args), content(vars(value))
    if isinstance(value, dict):
        return {name: content(one) for name, one in value.items()}
    return [content(one) for one in value] if isinstance(value, list | tuple) else value


def test_all_public_exceptions_are_found() -> None:
    public = [getattr(redlock_fast, name) for name in redlock_fast.__all__]
    classes = {value for value in public if isinstance(value, type)}
    assert {kind for kind in classes if issubclass(kind, BaseException)} <= set(EXCEPTIONS)
    assert len(EXCEPTIONS) == len(set(EXCEPTIONS)) > 20


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("kind", EXCEPTIONS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_copies_are_complete(kind: type[BaseException], way: str) -> None:
    error = example(kind)
    made = COPIES[way](error)
    assert made is not error
    assert content(made) == content(error)


def test_through_a_pool_of_processes() -> None:
    """An error that cannot be unpickled breaks the pool, and with it the jobs of all others."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        futures = [(error, pool.submit(fail, error)) for error in map(example, EXCEPTIONS)]
        for error, future in futures:
            came_back = future.exception(60)
            assert came_back is not None
            assert content(came_back) == content(error)


def test_a_client_of_a_master_stays_behind() -> None:
    """An error of pottery's has the masters as they were given; a connection cannot be pickled."""
    with redis.Redis() as master:
        error = PrimitiveError("key", frozenset({master}), CAUSES)
        made = pickle.loads(pickle.dumps(error))
        assert made.masters == frozenset({repr(master)})
        assert (str(made), made.key) == (str(error), "key")
