"""What is shown of servers' text, of names and of addresses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases

from redlock_fast import ConfigError, FastRedlock
from redlock_fast.cli.settings import Settings
from redlock_fast.compat._masters import master_specs as given_masters
from redlock_fast.locks.environment import split_urls
from redlock_fast.masters.address import target
from redlock_fast.masters.sentinel import parse_sentinel_url
from redlock_fast.wire.text import MAX_NAME, MAX_SAID, clean, quoted, redacted, without_logins


@cases(
    "raw, shown",
    [
        ("ERR größe", "ERR größe"),
        (b"\x1b]0;x\x07\n", r"\x1b]0;x\x07\n"),
        ("\u202e\u2028\x9b\x85", r"\u202e\u2028\x9b\x85"),
        (b"\xff\xfe", r"\xff\xfe"),
        ("x" * 300, "x" * (MAX_SAID - 3) + "..."),
        ("x" * MAX_SAID, "x" * MAX_SAID),
    ],
)
def test_clean(raw: str | bytes, shown: str) -> None:
    assert clean(raw) == shown


@given(raw=st.text() | st.binary(max_size=1000), limit=st.integers(10, 300))
def test_clean_text_is_printable_and_short(raw: str | bytes, limit: int) -> None:
    shown = clean(raw, limit)
    assert shown.isprintable()
    assert len(shown) <= limit


def test_quoted_names() -> None:
    assert quoted("orders:42") == "'orders:42'"
    assert quoted(b"orders:42") == "'orders:42'"
    assert quoted("größe".encode()) == "'größe'"
    assert quoted(b"\x1b") == r"'\x1b'"
    assert quoted(b"\xff'") == r'''"\xff'"'''
    assert quoted(("a", b"b")) == "('a', 'b')"
    assert len(quoted(("n" * 50,) * 1000)) == MAX_NAME
    for name in ("n" * 65_536, b"\xff" * 65_536):
        assert len(quoted(name)) <= MAX_NAME
        assert quoted(name).endswith("...")


def test_long_names_are_cut() -> None:
    client = FastRedlock(["redis://127.0.0.1:1"])
    lock = client.lock("n" * 65_536)
    with pytest.raises(Exception, match="nnn") as error:
        lock.extend()
    assert max(map(len, (str(error.value), repr(lock), repr(client.rlock("n" * 65_536))))) < 300


# --- addresses ------------------------------------------------------------------------------------

SECRET = "hunter2"
#: Passwords that were not escaped as they should be.
AWKWARD = ["/", ",", "@", ":", "?", "#", "?password=", "&a=", "://", " ", "%", "/0@", "[", "]"]
#: Where a password stands; some are no URLs of masters.
URLS = [
    "redis://:{}@10.0.0.1:6379/0",
    "redis://user:{}@10.0.0.1",
    "redis://user:{}@10.0.0.1:port",
    "redis://10.0.0.1:6379?password={}",
    "redis://10.0.0.1:6379/0?username=me&password={}&nonsense=1",
    "redis://10.0.0.1:port?password={}",
    "unix://me:{}@/run/redis.sock",
    "unix:///run/redis.sock?password={}&nonsense=1",
    "redis+sentinel://user:{}@10.0.0.1/",
    "redis+sentinel://10.0.0.1,10.0.0.2/locks?sentinel_password={}&nonsense=1",
    "http://user:{}@10.0.0.1",
    "user:{}@10.0.0.1:6379",
]


@cases("awkward", AWKWARD)
@cases("url", URLS)
def test_no_part_of_a_password_is_shown(url: str, awkward: str) -> None:
    raw = url.format(SECRET + awkward + SECRET)
    shown = [redacted(raw)]
    try:
        shown.append(target(raw).name)
    except ConfigError as error:
        shown.append(str(error))
    shown += map(redacted, split_urls(raw))
    assert SECRET not in repr(shown)


@cases("awkward", ["/", "?", "#", "/0@", "@1/", "?x&4711="])
@cases("url", [*URLS[:2], *URLS[6:7], "redis+sentinel://:{}@10.0.0.1/locks"])
def test_a_password_of_digits_is_no_port(url: str, awkward: str) -> None:
    with pytest.raises(ConfigError) as error:
        target(url.format(f"4711{awkward}x"))
    assert "4711" not in str(error.value)


@cases(
    "url, shown",
    [
        ("redis://10.0.0.1:port", "redis://10.0.0.1***"),
        ("redis://user:pw@host:1/0", "redis://***@host:1/0"),
        ("redis://host:6379/0?protocol=4", "redis://host:6379/0"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("redis+sentinel://a:1,b:2/locks/0", "redis+sentinel://a:1,b:2/locks/0"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock"),
        ("redis://:pass", "redis://***"),
        ("redis://host?password=a@b", "redis://***"),
        ("\x1b[2J://x@y\n", r"***@y\n"),
    ],
)
def test_what_is_shown_of_an_address(url: str, shown: str) -> None:
    assert redacted(url) == shown


@cases(
    "raw, shown",
    [
        ("no redis://me:se@cret@host:1/0, but", "no redis://***@host:1/0, but"),
        ("no redis://me:se/c,re t@host:1/0, but", "no redis://***@host:1/0, but"),
        ("rediss://:secret@a,redis://x:y@b", "rediss://***@a,redis://***@b"),
        ("redis://host/0?password=a,b/c&db=1 is it", "redis://host/0?password=***&db=1 is it"),
        ("redis://host/0 is at home", "redis://host/0 is at home"),
    ],
)
def test_logins_in_a_text(raw: str, shown: str) -> None:
    assert without_logins(raw) == shown


def test_no_repr_has_a_password() -> None:
    url = f"redis://user:{SECRET}@10.0.0.1"
    service = parse_sentinel_url(f"redis+sentinel://u:{SECRET}@h/locks?sentinel_password={SECRET}")
    shown = [target(url), service, Settings([url], {}), given_masters([url, {"password": SECRET}])]
    assert SECRET not in repr(shown)


def test_masters_of_a_flag_are_split_where_a_scheme_follows() -> None:
    sentinel = "redis+sentinel://:p,w@a:1,b:2/locks"
    assert split_urls(f"redis://:a,b@h, {sentinel}\nunix:///x,") == ["redis://:a,b@h", sentinel, "unix:///x"]
