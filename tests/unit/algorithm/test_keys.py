"""Names that a lock may not have: keys that this library uses itself."""

from __future__ import annotations

import pytest
from support.cases import cases

from redlock_fast import ConfigError, FastRedlock
from redlock_fast.algorithm.keys import key_of
from redlock_fast.wire.dialect import MARKER

USES = ["f", "w", "r", "i", "n", "q", "e", "0", "9", "10", "1023"]
RESERVED = [*(f"{{x}}:{use}" for use in USES), "{a}:b}:f"]
RESERVED += ["redlock-fast:masters", "redlock-fast:witness", "redlock-fast:marker"]
OTHERS = ["", "F", "00", "01", "1024", "-1", "+1", "ff", "²", "42:orders"]
FREE = [*(f"{{x}}:{use}" for use in OTHERS), "{x}", "{}:f", "x}:f", "{x:f", "a{x}:f"]
FREE += ["redlock:boot", "redlock-fast:x"]


@cases("name", RESERVED)
def test_reserved_names(name: str) -> None:
    for one in (name, name.encode()):
        with pytest.raises(ConfigError, match="uses itself"):
            key_of(b"", one)


@cases("name", FREE)
def test_other_names(name: str) -> None:
    assert key_of(b"", name) == name.encode()


def test_the_whole_key_counts() -> None:
    assert key_of(b"app:", "{x}:f") == b"app:{x}:f"
    own = (b"redlock-fast:", "marker"), (b"app:", "redlock-fast:masters:mark:1"), (b"app:", MARKER)
    for prefix, name in ((b"{app:", "x}:f"), *own):
        with pytest.raises(ConfigError, match="uses itself"):
            key_of(prefix, name)


@cases("name", ["a:redlock-fast:masters", "a:redlock-fast:marker", "redlock-fast:redlock-fast:witness"])
def test_a_name_without_a_prefix_makes_no_key_of_clients_with_one(name: str) -> None:
    """Catches: a lock in place of the record of masters of the clients that have the prefix ``a:``."""
    for prefix in (b"", b"x:"):
        with pytest.raises(ConfigError, match="uses itself"):
            key_of(prefix, name)
    for other in ("a:redlock-fast:orders", "a:masters"):
        assert key_of(b"", other) == other.encode()


@cases("name", ["masters", "masters:mark:1", "witness", "marker"])
def test_a_prefix_and_a_name_make_no_key_of_clients_without_a_prefix(name: str) -> None:
    """Catches: a lock in place of the record of masters, which those clients then find damaged."""
    with pytest.raises(ConfigError, match="uses itself"):
        key_of(b"redlock-fast:", name)
    assert key_of(b"redlock-fast:", "orders") == b"redlock-fast:orders"


def test_no_kind_takes_one() -> None:
    client = FastRedlock(["redis://127.0.0.1:1"])
    for make in (
        client.lock,
        client.rlock,
        client.rwlock,
        lambda name: client.semaphore(name, 3),
        lambda name: client.multilock(["a", name]),
        lambda name: client.acquire_many(["a", name]),
        client.locked,
    ):
        with pytest.raises(ConfigError, match="uses itself"):
            make("{x}:0")
