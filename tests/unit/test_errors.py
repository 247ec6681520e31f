"""Every exception of the package survives pickle, copy and the way back from another process."""

from __future__ import annotations

import copy
import importlib
import multiprocessing
import pickle
import pkgutil
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import redis
from support.cases import cases
from support.failing_job import fail

import redlock_fast
from redlock_fast import (
    ContendedTimeout,
    FastRedlock,
    LockNotAcquired,
    MasterError,
    QuorumTimeout,
    QuorumUnavailable,
    RedlockError,
)
from redlock_fast.cli.signals import Stopped
from redlock_fast.compat.pottery import PrimitiveError
from redlock_fast.compat.redlock_py import MultipleRedlockException
from redlock_fast.errors import needs

CAUSES = [MasterError("10.0.0.1:6379", "not connected"), MasterError("10.0.0.2:6379", "LOADING")]
FIELDS = {"resource": "orders:42", "reason": "held", "retry_after": 1.5}
#: For each class with an ``__init__`` of its own, what its instances are made from.
ARGUMENTS: dict[type, tuple[Any, ...]] = {
    LockNotAcquired: ("held",),
    MasterError: ("10.0.0.1:6379", "not connected"),
    MultipleRedlockException: (CAUSES, "no quorum"),
    PrimitiveError: ("key", frozenset({"redis://10.0.0.1"}), CAUSES),
    QuorumUnavailable: ("no quorum", CAUSES),
    RedlockError: ("text",),
    Stopped: (15,),
}
OPTIONS: dict[type, dict[str, Any]] = {
    LockNotAcquired: {**FIELDS, "masters": ["10.0.0.1:6379"], "causes": CAUSES},
    QuorumUnavailable: FIELDS,
    RedlockError: {"resource": ("a", b"b")},
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
        # A module of integrations needs its framework, and defines no exceptions.
        if not module.name.endswith(("__main__", "_native")) and ".integrations." not in module.name:
            for value in vars(importlib.import_module(module.name)).values():
                defined_here = getattr(value, "__module__", "") == module.name
                if defined_here and isinstance(value, type) and issubclass(value, BaseException):
                    yield value


EXCEPTIONS = sorted(exceptions(), key=lambda kind: (kind.__module__, kind.__name__))


def example(kind: type[BaseException]) -> BaseException:
    """An instance with a note."""
    maker = next(base for base in kind.__mro__ if "__init__" in vars(base))
    error = kind(*ARGUMENTS.get(maker, ("text",)), **OPTIONS.get(maker, {}))
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


@cases("way", COPIES)
@cases("kind", EXCEPTIONS)
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


def test_through_a_pool_of_multiprocessing() -> None:
    """A worker of such a pool ends with an exception that is no Exception, whatever it is."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for error in [example(kind) for kind in EXCEPTIONS if issubclass(kind, Exception)]:
            with pytest.raises(type(error)) as caught:
                pool.apply(fail, [error])
            came_back = caught.value
            assert content(came_back) == content(error)


@pytest.mark.parametrize("kind", [ContendedTimeout, QuorumTimeout])
def test_an_ended_timeout_is_a_timeout_error(kind: type[LockNotAcquired]) -> None:
    """Three ways to catch it; and no part of OSError shows."""
    error: Any = kind("r is held", resource="r", reason="held")
    for base in (kind.__mro__[1], LockNotAcquired, RedlockError, TimeoutError):
        with pytest.raises(base) as caught:
            raise error
        assert str(caught.value) == "r is held"
    assert (error.errno, error.strerror, error.filename, error.args) == (None, None, None, ("r is held",))


def test_fields_that_were_not_passed() -> None:
    error = QuorumUnavailable("no quorum", CAUSES)
    assert (error.resource, error.reason, error.retry_after) == (None, "", None)
    assert error.masters == ("10.0.0.1:6379", "10.0.0.2:6379")
    assert str(error) == "no quorum; 10.0.0.1:6379: not connected; 10.0.0.2:6379: LOADING"
    assert RedlockError().args == ()


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("redlock_fast.prometheus", "prometheus_client", "redlock-fast[prometheus]"),
        ("redlock_fast.otel", "opentelemetry", "redlock-fast[otel]"),
        ("redlock_fast.integrations.arq", "arq", "arq"),
        ("redlock_fast.integrations.celery", "celery", "celery"),
    ],
)
def test_a_missing_extra(monkeypatch: pytest.MonkeyPatch, module: str, package: str, extra: str) -> None:
    """The error names the command that installs it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ModuleNotFoundError, match=re.escape(f"pip install '{extra}'")) as error:
        importlib.import_module(module)
    assert str(error.value.name).partition(".")[0] == package


def test_missing_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.setitem(sys.modules, "redis.connection", None)
    with pytest.raises(ModuleNotFoundError, match=re.escape("pip install 'redis>=5.1'")):
        FastRedlock(["redis://10.0.0.1"])


def test_another_import_error_stays() -> None:
    with pytest.raises(ModuleNotFoundError) as error, needs("redis", "redis>=5.1"):
        importlib.import_module("nothing_of_this_name")
    assert str(error.value) == "No module named 'nothing_of_this_name'"


def test_a_client_of_a_master_stays_behind() -> None:
    """An error of pottery's has the masters as they were given; a connection cannot be pickled."""
    with redis.Redis() as master:
        error = PrimitiveError("key", frozenset({master}), CAUSES)
        made = pickle.loads(pickle.dumps(error))
        assert made.masters == frozenset({repr(master)})
        assert (str(made), made.key) == (str(error), "key")
