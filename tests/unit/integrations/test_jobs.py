"""Integrations for jobs: bad settings are a ConfigError at the decorator, and at the first tick of a beat."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.cases import cases

from redlock_fast import (
    AsyncFastRedlock,
    AsyncShardedRedlock,
    ConfigError,
    FastRedlock,
    RedlockError,
    ShardedRedlock,
)
from redlock_fast.integrations.celery_beat import OneActive

pytestmark = pytest.mark.filterwarnings("default")  # those of other packages are not ours to mend

URLS = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]
FOR_THREADS, FOR_ASYNCIO = (FastRedlock, ShardedRedlock), (AsyncFastRedlock, AsyncShardedRedlock)


def made(kind: type[Any]) -> Any:
    return kind([URLS]) if kind in (ShardedRedlock, AsyncShardedRedlock) else kind(URLS)


@pytest.fixture(params=["celery", "arq"])
def package(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param, reason=f"package {request.param} is not installed")
    return str(request.param)


@pytest.fixture
def single_run(package: str) -> Callable[..., Any]:
    decorator: Callable[..., Any] = importlib.import_module(f"redlock_fast.integrations.{package}").single_run
    return decorator


# --- decorators -----------------------------------------------------------------------------------


def test_the_kind_of_a_client(package: str, single_run: Callable[..., Any]) -> None:
    good, bad = (FOR_THREADS, FOR_ASYNCIO) if package == "celery" else (FOR_ASYNCIO, FOR_THREADS)
    what = "threads (FastRedlock, ShardedRedlock)"
    if package == "arq":
        what = "asyncio (AsyncFastRedlock, AsyncShardedRedlock)"
    for client in (*map(made, bad), None, 3, FastRedlock):
        text = re.escape(f"client must be a client for {what}, not {type(client).__name__}")
        with pytest.raises(ConfigError, match=f"^{text}$"):
            single_run(client, "name")
    for client in map(made, good):
        single_run(client, "name")


@cases("pause", [-1, "x", math.nan, True, math.inf])
def test_the_pause_before_the_next_try(package: str, single_run: Callable[..., Any], pause: Any) -> None:
    option = {"celery": "countdown", "arq": "defer"}[package]
    client = made(FastRedlock if package == "celery" else AsyncFastRedlock)
    with pytest.raises(ConfigError, match=f"{option} must be .*at least 0, not {pause!r}"):
        single_run(client, "name", if_taken="retry", **{option: pause})
    single_run(client, "name", if_taken="retry", **{option: 0})


@cases("name", ["name", None, str])
def test_options_of_the_lock(package: str, single_run: Callable[..., Any], name: Any) -> None:
    """They are checked at the decorator, also with a function for the name."""
    client = made(FastRedlock if package == "celery" else AsyncFastRedlock)
    for options, text in [({"ttl": -1}, "ttl must be"), ({"once_per": 0}, "once_per"), ({"tll": 5}, "'tll'")]:
        with pytest.raises(ConfigError, match=text):
            single_run(client, name, **options)


# --- beat -----------------------------------------------------------------------------------------


class Scheduler:
    """As the scheduler of beat."""

    def tick(self) -> float:
        return 5.0

    def apply_entry(self, entry: Any, producer: Any = None) -> None: ...


class Persistent(Scheduler):
    """It has the methods of its base."""


class Logging(OneActive):
    """It is still the one of OneActive that decides."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        return super().tick(*args, **kwargs)


def test_bases_of_a_beat_in_the_wrong_order() -> None:
    for bases in [(Scheduler, OneActive), (Persistent, OneActive), (Persistent, Logging)]:
        with pytest.raises(ConfigError, match=r"^Beat: write OneActive before Scheduler, "):
            type("Beat", bases, {})
    for bases in [(OneActive, Persistent), (Logging, Persistent), (OneActive,)]:
        own = type("Beat", bases, {"tick": lambda self: super(type(self), self).tick()})
        assert issubclass(type("Mine", (own,), {}), OneActive)


@pytest.fixture
def beat() -> Iterator[Callable[..., Any]]:
    """``beat(name=value)``: a beat with these attributes of its class."""
    made = []

    def make(**attributes: Any) -> Any:
        made.append(type("Beat", (OneActive, Persistent), attributes)())
        return made[-1]

    yield make
    assert [one._leader for one in made] == [None] * len(made), "none has begun a campaign"


@cases("kind", [AsyncFastRedlock, AsyncShardedRedlock, None])
def test_the_client_of_a_beat(beat: Callable[..., Any], kind: type[Any] | None) -> None:
    one = beat() if kind is None else beat(client=made(kind))
    name = "NoneType" if kind is None else kind.__name__
    with pytest.raises(
        ConfigError, match=rf"client for threads \(FastRedlock, ShardedRedlock\), not {name}$"
    ):
        one.tick()


@cases("kind", FOR_THREADS)
@cases("lease", [0, -1, 0.001, 15.1, "x", math.nan, None])
def test_the_lease_of_a_beat(beat: Callable[..., Any], kind: type[Any], lease: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^lease must be .*at most 15, not {lease!r}$"):
        beat(client=made(kind), lease=lease).tick()


def test_the_name_of_a_beat(beat: Callable[..., Any]) -> None:
    with pytest.raises(RedlockError, match="resource"):
        beat(client=made(FastRedlock), leader_name="").tick()
