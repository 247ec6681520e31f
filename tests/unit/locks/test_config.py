"""Bad input: a ConfigError that says which argument and what is allowed, before any I/O."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, cast

import pytest
import redis
from support.cases import cases
from support.inside import core_of

from redlock_fast import (
    AsyncFastRedlock,
    AsyncShardedRedlock,
    ConfigError,
    FastRedlock,
    Lock,
    RedlockError,
    Retry,
    ShardedRedlock,
)
from redlock_fast.engine.contract import MAX_MASTERS
from redlock_fast.locks.client_base import MAX_RETENTION
from redlock_fast.sharded.placement import Sharding

URLS = [f"redis://10.0.0.{number}" for number in range(1, 4)]
NAN = math.nan


@pytest.fixture(autouse=True)
def no_io(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is connected, looked up or started."""
    threads = set(threading.enumerate())

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("this is I/O")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield
    assert set(threading.enumerate()) == threads


def refused(call: Callable[[], object], *words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    error = caught.value
    assert isinstance(error, RedlockError)
    assert isinstance(error, ValueError)
    assert isinstance(error, TypeError)
    for word in words:
        assert word in str(error)
    return str(error)


@pytest.fixture
def client() -> Iterator[FastRedlock]:
    with FastRedlock(URLS) as client:
        yield client


@pytest.fixture
def lock(client: FastRedlock) -> Lock:
    return client.lock("r")


# --- masters ------------------------------------------------------------------------------------


@cases("masters", [[], (), [f"redis://10.0.1.{number}" for number in range(64)]])
def test_number_of_masters(masters: Any) -> None:
    refused(lambda: FastRedlock(masters), "masters", f"1 to {MAX_MASTERS}", f"not {len(masters)}")


CLIENTS: list[Any] = [FastRedlock, AsyncFastRedlock, ShardedRedlock, AsyncShardedRedlock]


@cases("kind", CLIENTS)
def test_missing_masters(kind: Any) -> None:
    """The error names the class and its argument, not a base class."""
    argument = "groups" if issubclass(kind, Sharding) else "masters"
    refused(kind, f"{kind.__name__}() needs the argument {argument}:")
    refused(lambda: kind(ttl=5.0), f"{kind.__name__}() needs the argument {argument}:")


@cases("kind", CLIENTS)
def test_a_client_whose_settings_were_refused_has_a_repr(kind: Any) -> None:
    """A debugger, or a traceback with local variables, shows it."""
    assert repr(kind.__new__(kind)).startswith(f"<{kind.__name__}: ")


@cases("call", [copy.copy, copy.deepcopy, pickle.dumps])
@cases("kind", CLIENTS)
def test_a_client_is_not_copied(kind: Any, call: Callable[[object], object]) -> None:
    """Neither is what refers to it, as an argument of a process pool."""
    client = kind([URLS] if issubclass(kind, Sharding) else URLS)
    for one in (client, client.rwlock("r")):
        if one is client or call is not copy.copy:
            with pytest.raises(TypeError, match=r"Redlock cannot be copied or pickled: make a client in"):
                call(one)
    for holder in (client.leader("r"), client.single_run("r"), client.rlock("r")):
        with pytest.raises(TypeError, match=r"copied or pickled: two objects would hold one lock"):
            call(holder)


@cases("call", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_lock_is_not_copied(call: Callable[[object], object]) -> None:
    """A copy would be a second holder of one lease."""
    for client in (FastRedlock(URLS), AsyncFastRedlock(URLS)):
        for lock in (client.lock("r"), client.semaphore("r", 2), client.multilock(["r", "s"])):
            with pytest.raises(TypeError, match=r"'r'.*: a lock cannot be copied or pickled: .*detach\(\)"):
                call(lock)


@cases("kind", CLIENTS)
def test_masters_that_are_several_arguments(kind: Any) -> None:
    refused(lambda: kind(*URLS), f"{kind.__name__}() takes one argument", "and not 3")
    name = next(iter(inspect.signature(kind).parameters))
    refused(lambda: kind(URLS, **{name: URLS}), f"one argument {name}", "and not 2")


@cases("masters", [URLS[0], URLS[0].encode(), None, 5, set(URLS), dict.fromkeys(URLS), iter(URLS)])
def test_masters_that_are_no_list(masters: Any) -> None:
    refused(lambda: FastRedlock(masters), "masters", "list", type(masters).__name__)


@cases("master", [None, 5, b"redis://10.0.0.1", object(), ["redis://10.0.0.1"]])
def test_master_that_is_neither_url_nor_client(master: Any) -> None:
    refused(lambda: FastRedlock([*URLS, master]), "masters", "URL", type(master).__name__)


@cases(
    "url",
    [
        "",
        "10.0.0.4",
        "10.0.0.4:6379",
        "http://10.0.0.4",
        "redis:/10.0.0.4",
        "redis://10.0.0.4:port",
        "redis://h:99999",
        "redis://10.0.0.4/orders",
        "rediss://10.0.0.4/1/2",
    ],
)
def test_bad_url(url: str) -> None:
    refused(lambda: FastRedlock([*URLS, url]), "masters", url.removesuffix(":port"), "redis://host:port/db")


def test_url_with_an_unknown_option() -> None:
    refused(lambda: FastRedlock(["redis://10.0.0.4?tls_version=5"]), "masters", "10.0.0.4", "tls_version")


@cases(
    "first, second",
    [
        ("redis://10.0.0.1", "redis://10.0.0.1"),
        ("redis://10.0.0.1", "redis://10.0.0.1:6379"),
        ("redis://10.0.0.1/0", "redis://10.0.0.1/1"),
        ("redis://10.0.0.1", "valkey://10.0.0.1"),
        ("redis://10.0.0.1", "rediss://10.0.0.1"),
        ("redis://a:b@10.0.0.1", "redis://c:d@10.0.0.1"),
        ("redis://MASTER.example", "redis://master.example"),
        ("unix:///run/a", "unix:///run/a?db=2"),
    ],
)
def test_one_server_twice(first: str, second: str) -> None:
    """It would have two votes: a database of its own makes no master of its own."""
    message = refused(lambda: FastRedlock([URLS[1], first, second]), "masters", "one server")
    assert "b@" not in message
    assert ":b" not in message


def test_sentinels_in_another_order_are_one_master_of_two_lists() -> None:
    first, second = (f"redis+sentinel://{hosts}/orders" for hosts in ("a:1,b:2", "b:2,a:1"))
    with FastRedlock([first, *URLS[:2]], joint_with=[second, *URLS[:2]]) as one:
        assert len(one.health()) == 3
    refused(lambda: FastRedlock([first], joint_with=[f"{second}/1"]), "joint_with", "one server")


def test_one_server_twice_as_url_and_as_client() -> None:
    with redis.Redis("10.0.0.1", db=4) as same:
        refused(lambda: FastRedlock([URLS[0], same]), "masters", "10.0.0.1:6379/0", "10.0.0.1:6379/4")


# --- numbers ------------------------------------------------------------------------------------


def short(value: object) -> str:
    return repr(value)[:20]


class Int64:
    """As that of numpy: no int."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __int__(self) -> int:
        return self.value

    __index__ = __int__


class Array(list[Any]):
    """As an array of numpy: a comparison is an array, which has no truth."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    def __eq__(self, other: object) -> Any:
        return self

    __ne__, __hash__ = __eq__, None  # type: ignore[assignment]


NO_NUMBERS = [NAN, math.inf, -math.inf, "10", b"1", None, True, [1], 1j, 10**400]


@cases("value", [*NO_NUMBERS, 0, -1, 0.002, 60.1], ids=short)
def test_ttl(client: FastRedlock, lock: Lock, value: Any) -> None:
    for_client = refused(lambda: FastRedlock(URLS, ttl=value), "ttl")
    assert "more than" in for_client
    if value is not None:  # there it stands for the client's
        refused(lambda: client.lock("r", value), "ttl", "more than")
        refused(lambda: client.acquire("r", value), "ttl", "more than")
        refused(lambda: client.synchronized("r", value), "ttl", "more than")
        refused(lambda: lock.extend(value), "ttl", "more than")


@cases("value", ["10", None, True, Decimal(3), Fraction(3), Int64(3)], ids=short)
def test_numbers_of_other_types(value: Any) -> None:
    """An int of numpy is a number as well: the text says which types are meant."""
    text = refused(
        lambda: FastRedlock(URLS, ttl=value), f"ttl must be an int or a float, more than 0, not {value!r}"
    )
    assert "finite" not in text


def test_clock() -> None:
    refused(lambda: FastRedlock(URLS, clock=cast(Any, 3.0)), "clock", "function")


def test_infinity_is_more_than_0(client: FastRedlock) -> None:
    refused(lambda: client.lock("r", math.inf), "ttl must be a finite number", "not inf")


def test_range_of_the_ttl() -> None:
    message = refused(lambda: FastRedlock(URLS, ttl=21, max_ttl=20), "ttl", "max_ttl", "20 s", "21 s")
    assert "drift" in message
    refused(lambda: FastRedlock(URLS, ttl=0.0039, drift_factor=0.5), "0.00395 s")
    assert len(refused(lambda: FastRedlock(URLS, ttl=1e300))) < 100
    assert FastRedlock(URLS, ttl=20, max_ttl=20).lock("r").ttl == 20
    assert FastRedlock(URLS, ttl=0.0021, drift_factor=0).lock("r").ttl == 0.0021
    assert FastRedlock(URLS, max_ttl=3600).lock("r", ttl=3600).ttl == 3600


def test_max_ttl_and_fencing_retention() -> None:
    """A fencing counter must outlive every lease: its retention is the bound of max_ttl."""
    text = refused(lambda: FastRedlock(URLS, max_ttl=172_800), "at most fencing_retention (86400 s)")
    assert text.startswith("max_ttl must be ")
    assert "not 172800 s" in text
    refused(lambda: FastRedlock(URLS, fencing_retention=30), "max_ttl", "fencing_retention (30 s)", "60 s")
    refused(lambda: FastRedlock(URLS, max_ttl=2 * MAX_RETENTION), "max_ttl", f"at most {MAX_RETENTION:g}")
    refused(lambda: FastRedlock(URLS, fencing_retention=0), "fencing_retention", "more than 0")
    assert core_of(FastRedlock(URLS, max_ttl=86_400)).max_ttl == 86_400
    assert core_of(FastRedlock(URLS, max_ttl=172_800, fencing_retention=172_800)).max_ttl == 172_800


@cases("value", [*NO_NUMBERS, 0, 0.0, -1], ids=short)
@cases("name", ["node_timeout", "connect_timeout", "socket_timeout", "max_ttl"])
def test_times_of_the_client(name: str, value: Any) -> None:
    options: dict[str, Any] = {name: value}
    refused(lambda: FastRedlock(URLS, **options), name, "more than 0")


@cases("value", [*NO_NUMBERS, -1], ids=short)
def test_the_time_to_connect(client: FastRedlock, value: Any) -> None:
    if value is not None:
        refused(lambda: client.connect(value), "timeout", "at least 0")
    refused(lambda: FastRedlock(URLS, connect_timeout=2e6), "connect_timeout", "at most 1e+06")


@cases("value", [*NO_NUMBERS, -1, 101, 1.0], ids=short)
def test_replicas(value: Any) -> None:
    refused(lambda: FastRedlock(URLS, replicas=value), "replicas must be an integer from 0 to 100")
    for allowed in (0, 1, 100):
        FastRedlock(URLS, replicas=allowed)


@cases("value", [*NO_NUMBERS, -0.01, 0.51], ids=short)
def test_drift_factor(value: Any) -> None:
    refused(lambda: FastRedlock(URLS, drift_factor=value), "drift_factor", "at least 0", "at most 0.5")
    for allowed in (0, 0.5):
        FastRedlock(URLS, drift_factor=allowed)


@cases(
    "retry, words",
    [
        (5, ["retry", "Retry", "int"]),
        (Retry, ["retry", "Retry", "type"]),
        (Retry(min_delay=-1), ["retry.min_delay", "at least 0"]),
        (Retry(min_delay=NAN), ["retry.min_delay", "at least 0"]),
        (Retry(max_delay=math.inf), ["retry.max_delay", "at least 0.005"]),
        (Retry(min_delay=0.5, max_delay=0.1), ["retry.max_delay", "at least 0.5"]),
        (Retry(max_attempts=0), ["retry.max_attempts", "at least 1"]),
        (Retry(max_attempts=-1), ["retry.max_attempts", "at least 1"]),
        (Retry(max_attempts=1.5), ["retry.max_attempts", "at least 1"]),  # type: ignore[arg-type]
        (Retry(max_attempts=True), ["retry.max_attempts", "at least 1"]),
    ],
)
def test_retry(retry: Any, words: list[str]) -> None:
    refused(lambda: FastRedlock(URLS, retry=retry), *words)


# --- the rest of the client's -------------------------------------------------------------------


@cases("value", ["any", "", None, True])
def test_decide(value: Any) -> None:
    refused(lambda: FastRedlock(URLS, decide=value), "decide", "quorum, all", repr(value))


@cases("value", ["rust", "", "Native"])
def test_engine(value: Any) -> None:
    refused(lambda: FastRedlock(URLS, engine=value), "engine", "auto, native, python", repr(value))


def test_engine_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDLOCK_FAST_ENGINE", "rust")
    refused(lambda: FastRedlock(URLS), "REDLOCK_FAST_ENGINE", "'auto', 'native' or 'python'", "'rust'")


@cases("value", [None, 5, ["a"], object()], ids=short)
def test_key_prefix(value: Any) -> None:
    refused(lambda: FastRedlock(URLS, key_prefix=value), "key_prefix", "str or bytes", type(value).__name__)


def test_size_of_a_key_prefix() -> None:
    refused(lambda: FastRedlock(URLS, key_prefix="x" * 65537), "key_prefix", "at most 65536 bytes", "65537")


def test_unknown_options(client: FastRedlock) -> None:
    message = refused(lambda: FastRedlock(URLS, ttl_ms=5, retries=3), "'ttl_ms'", "'retries'")
    for known in ("ttl", "node_timeout", "retry", "engine", "decide", "max_ttl"):
        assert f" {known}" in message
    assert "unknown" not in message
    message = refused(lambda: client.lock("r", blocking=False), "'blocking'")
    for known in ("ttl", "timeout", "max_extensions"):
        assert f" {known}" in message
    assert "core" not in message


#: The methods that pass options on to ``lock``, with an option of their own, and those that they refuse.
PASS_ON = [
    (lambda client, **options: client.rwlock("r", **options), "rwlock", "ttl", ["fair", "fencing", "token"]),
    (
        lambda client, **options: client.semaphore("r", 3, **options),
        "semaphore",
        "permits",
        ["fair", "token"],
    ),
    (lambda client, **options: client.synchronized("r", **options), "synchronized", "fair", []),
    (lambda client, **options: client.synchronized(str, **options), "synchronized", "token", []),
    (
        lambda client, **options: client.single_run("r", **options),
        "single_run",
        "once_per",
        ["fair", "token"],
    ),
]


@cases("kind", CLIENTS)
@cases("call, method, own, refuses", PASS_ON)
def test_an_unknown_option_is_refused_in_the_name_of_the_method(
    kind: Any, call: Callable[..., object], method: str, own: str, refuses: list[str]
) -> None:
    client = kind([URLS] if issubclass(kind, Sharding) else URLS)
    message = refused(lambda: call(client, timeout=1, blocking=False, tll=5))
    start, _, known = message.partition("; it has: ")
    assert start == f"{method}() has no option 'blocking', 'tll'"
    names = known.split(", ")
    assert {own, "ttl", "timeout", "on_lost"} <= {*names}
    assert ("cancel_on_loss" in names) is ("Async" in kind.__name__)
    assert not {*names} & {*refuses, "options", "unknown", "return"}
    for option in refuses:
        refused(partial(call, client, **{option: b"x" if option == "token" else True}), option)


@cases("kind", CLIENTS)
def test_settings_of_a_decorator_with_a_function_for_the_name(kind: Any) -> None:
    """They are checked at the decorator, as with a name."""
    client = kind([URLS] if issubclass(kind, Sharding) else URLS)
    for decorator in (client.synchronized, client.single_run):
        refused(partial(decorator, str, -1), "ttl must be")
        refused(partial(decorator, str, label=5), "label must be")


ARRAY = Array(["auto", "auto"])


@cases(
    "option",
    ["timeout", "wait", "decide", "restart_guard", "check_masters", "engine", "ttl", "refill"],
)
def test_an_array_as_an_option_of_a_client(option: str) -> None:
    refused(lambda: FastRedlock(URLS, **{option: ARRAY}), option)


@cases(
    "option", ["timeout", "fair", "fencing", "token", "auto_extend", "max_hold", "label", "release_at_exit"]
)
def test_an_array_as_an_option_of_a_lock(client: FastRedlock, option: str) -> None:
    for make in (client.lock, client.single_run):
        refused(partial(make, "r", **{option: ARRAY}), option)
    refused(lambda: client.single_run("r", if_taken=cast(Any, ARRAY)), "if_taken")


# --- what locks are given -----------------------------------------------------------------------


@cases(
    "resource",
    [
        "",
        b"",
        "x" * ((64 << 10) + 1),
        b"x" * ((64 << 10) + 1),
        "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * (32 << 10) + "x",
    ],
    ids=len,
)
def test_size_of_a_resource(client: FastRedlock, resource: str | bytes) -> None:
    size = len(resource.encode() if isinstance(resource, str) else resource)
    for call in (client.lock, client.acquire, client.locked, client.synchronized):
        refused(partial(call, resource), "resource", "1 to 65536 bytes", f"not {size}")


@cases("resource", [None, 5, bytearray(b"r"), ["r"]], ids=short)
def test_kind_of_a_resource(client: FastRedlock, resource: Any) -> None:
    for call in (client.lock, client.acquire, client.locked, client.synchronized):
        refused(partial(call, resource), "resource", "str or bytes", type(resource).__name__)


def test_resource_that_cannot_be_encoded(client: FastRedlock) -> None:
    refused(lambda: client.lock("half a pair: \ud83d"), "resource")


@cases("value", [NAN, "5", True, -2, -0.5, -math.inf, [1], 10**400], ids=short)
def test_timeout(client: FastRedlock, lock: Lock, value: Any) -> None:
    refused(lambda: client.lock("r", timeout=value), "timeout", "at least 0")
    refused(lambda: client.acquire("r", timeout=value), "timeout", "at least 0")
    refused(lambda: client.synchronized("r", timeout=value), "timeout", "at least 0")
    refused(lambda: lock.acquire(timeout=value), "timeout", "at least 0")
    refused(lambda: lock.acquire(timeout=value), "timeout")  # it is not left in a half-acquired state
    assert not lock.locked()


def test_timeout_without_blocking(client: FastRedlock, lock: Lock) -> None:
    for timeout in (0, 1, 2.5):
        refused(partial(lock.acquire, blocking=False, timeout=timeout), "timeout", "blocking")
        refused(partial(client.acquire, "r", blocking=False, timeout=timeout), "timeout", "blocking")


@cases("value", [0.5, 1.0, 2, -1, None, "no"], ids=short)
def test_seconds_in_place_of_blocking(client: FastRedlock, lock: Lock, value: Any) -> None:
    """They would mean True, and a wait without end."""
    for acquire in (lock.acquire, partial(client.acquire, "r", None), client.rlock("r").acquire):
        refused(partial(acquire, value), "blocking must be True or False", "timeout=")
    assert not lock.locked()


@cases("value", [NAN, math.inf, "10", b"1", True, [1], 1j, -1, 1.5, 1.0], ids=short)
def test_max_extensions(client: FastRedlock, value: Any) -> None:
    refused(lambda: client.lock("r", max_extensions=value), "max_extensions", "at least 0")


# --- defaults of a client, which its locks override -----------------------------------------------

CLIENTS: list[Any] = [
    FastRedlock, AsyncFastRedlock, lambda urls, **options: ShardedRedlock([urls], **options),
    lambda urls, **options: AsyncShardedRedlock([urls], **options),
]  # fmt: skip
clients = cases("make", CLIENTS)


def locks(client: Any, **options: Any) -> list[Any]:
    """A lock of each kind with ``options``."""
    return [
        client.lock("r", **options),
        client.lock("r", fair=True, **options),
        client.rlock("r", **options).owned_by("me")._lock(None),
        client.rwlock("r", **options).write(),
        client.semaphore("r", 3, **options),
        client.multilock(["r"], **options),
    ]


def settings(lock: Any) -> tuple[object, ...]:
    """Its timeout, whether it is auto-extended, and for how long."""
    renewed = lock._auto_extension
    return lock._timeout, renewed is not None, renewed and renewed.max_hold


@clients
def test_defaults_of_a_client(make: Any) -> None:
    plain = make(URLS)
    assert {settings(lock) for lock in locks(plain)} == {(None, False, None)}
    assert {settings(lock) for lock in locks(plain, auto_extend=True)} == {(None, True, 3600.0)}
    client = make(URLS, timeout=5, auto_extend=True, max_hold=60)
    assert {settings(lock) for lock in locks(client)} == {(5.0, True, 60.0)}
    assert {settings(lock) for lock in locks(client, timeout=7, max_hold=90)} == {(7.0, True, 90.0)}
    assert {settings(lock) for lock in locks(client, timeout=None, max_hold=None)} == {(None, True, math.inf)}
    assert {settings(lock) for lock in locks(client, auto_extend=False)} == {(5.0, False, None)}
    assert settings(make(URLS, auto_extend=True, max_hold=None).lock("r"))[2] == math.inf


@clients
@cases(
    "options, word",
    [
        *[({"timeout": value}, "timeout") for value in (NAN, "5", True, -2)],
        *[({"auto_extend": value}, "auto_extend") for value in (1, None, "yes")],
        *[({"max_hold": value}, "max_hold") for value in (0, -1, True, "5", NAN, math.inf)],
    ],
    ids=short,
)
def test_bad_defaults_of_a_client(make: Any, options: dict[str, Any], word: str) -> None:
    refused(lambda: make(URLS, **options), word)


def test_terms_of_renewal_against_the_default() -> None:
    client = FastRedlock(URLS, auto_extend=True)
    client.lock("r", on_lost=print, max_hold=5)
    refused(lambda: client.lock("r", auto_extend=False, on_lost=print), "auto_extend=True")
    refused(lambda: client.lock("r", auto_extend=False, max_hold=5), "auto_extend=True")


@cases("value", [0, 1, "no"], ids=short)
def test_release_at_exit(client: FastRedlock, value: Any) -> None:
    for make in (client.lock, client.rlock, partial(client.semaphore, permits=3)):
        refused(partial(make, "r", release_at_exit=value), "release_at_exit", "True or False")
    refused(lambda: client.multilock(["r"], release_at_exit=value), "release_at_exit", "True or False")


@cases("value", [0, 1, None, "no", "false"], ids=short)
@cases("option", ["allow_split", "assume_fresh", "release_at_exit"])
def test_flags_of_a_client(option: str, value: Any) -> None:
    """Text from an environment is true, also where it says "false"."""
    refused(lambda: FastRedlock(URLS, restart_guard="marker", **{option: value}), option, "True or False")


@cases("value", [0, 1, None, "no"], ids=short)
@cases("option", ["fencing", "fair"])
def test_flags_of_a_lock(client: FastRedlock, option: str, value: Any) -> None:
    refused(lambda: client.lock("r", **{option: value}), option, "True or False")


@cases("value", [0, 1, None, "no", 5.0], ids=short)
def test_confirm_of_extend(lock: Lock, value: Any) -> None:
    refused(lambda: lock.extend(confirm=value), "confirm must be True or False")


def test_lock_that_was_not_made() -> None:
    """Catches: compiled fields that are read where there is nothing: of a subclass whose __init__ raised."""
    nothing = Lock.__new__(Lock)
    for use in (
        nothing.locked,
        nothing.check,
        nothing.acquire,
        nothing.release,
        nothing.extend,
        nothing.__repr__,
    ):
        with pytest.raises(AttributeError):
            use()


# --- and what is good ---------------------------------------------------------------------------


def test_ends_of_the_ranges_are_good() -> None:
    FastRedlock(URLS[:1])
    FastRedlock(tuple(URLS[:2]))
    with FastRedlock([f"redis://10.0.1.{number}" for number in range(63)]) as many:
        assert core_of(many).policy.voters.lists.need == 32
    with FastRedlock(URLS, retry=Retry(0, 0, 1), node_timeout=1e-6, ttl=60, key_prefix=b"") as client:
        for timeout in (None, -1, -1.0, 0, 0.0, 5, math.inf):
            client.lock("r", timeout=timeout)
        for extensions in (None, 0, 1):
            client.lock("r", max_extensions=extensions)
        for resource in ("r", b"\0", "x" * (64 << 10)):
            assert client.lock(resource).resource == resource
    assert (
        core_of(FastRedlock(["redis://10.0.0.1:6379", "redis://10.0.0.1:6380"])).policy.voters.lists.masters
        == 2
    )
