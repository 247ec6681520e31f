"""``redlock-fast status`` with a list that the masters refuse: it says what a client with it would raise."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from support.commands import Command
from support.waiting import PATIENT, eventually

from redlock_fast import FastRedlock
from redlock_fast.embedded import Masters

KEY = "redlock-fast:masters"
Raw = Callable[[Masters], list[redis.Redis]]


def status_of(urls: list[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, err = Command(None).run("status", "--json", "--masters", ",".join(urls), *arguments)
    assert err == ""
    return code, json.loads(out)


Records = Callable[[], list[Any]]


@pytest.fixture
def records(valkey: Masters, raw: Raw) -> Records:
    nodes = raw(valkey)
    return lambda: [node.get(KEY) for node in nodes]


@pytest.fixture
def first_three(valkey: Masters, records: Records) -> list[str]:
    """The list of the fleet, in force on each of its masters: nothing is written any more."""
    urls = valkey.urls[:3]
    with FastRedlock(urls, check_masters="auto", **PATIENT) as client:
        client.connect()
        eventually(lambda: all(one.listed for one in client.health()), "the client votes by it")
        eventually(
            lambda: all(b'"in_force":true' in (text or b"") for text in records()[:3]), "each master has it"
        )
    return urls


def test_the_list_in_force(first_three: list[str], records: Records) -> None:
    before = records()
    code, status = status_of(first_three)
    assert (code, status["usable"], status["problem"]) == (0, True, "")
    assert [(one["listed"], one["no_vote"]) for one in status["masters"]] == [(True, "")] * 3
    assert records() == before


@pytest.mark.parametrize("places", [(0, 1, 2, 3, 4), (2, 3, 4), (0, 1)])
def test_another_list(
    valkey: Masters, first_three: list[str], records: Records, places: tuple[int, ...]
) -> None:
    """Catches: 0 and "usable", where each client with these settings raises ConfigError."""
    before = records()
    urls = [valkey.urls[place] for place in places]
    code, status = status_of(urls)
    assert (code, status["usable"], status["refused"]) == (64, False, False)
    assert "the masters 127.0.0.1:" in status["problem"]
    assert [one["listed"] for one, place in zip(status["masters"], places, strict=True) if place > 2] == [
        False for place in places if place > 2
    ]
    code, out, err = Command(None).run("status", "--masters", ",".join(urls))
    assert (code, err) == (64, "")
    assert out.splitlines()[-1].startswith("NOT usable: ")
    assert "(epoch 1)" in out
    assert records() == before, "the command records no list"


def test_another_max_ttl(first_three: list[str], tmp_path: Path) -> None:
    file = tmp_path / "locks.toml"
    file.write_text("[redlock-fast]\nmax_ttl = 30\n")
    code, status = status_of(first_three, "--config", str(file))
    assert (code, status["usable"]) == (64, False)
    assert "it expects max_ttl=60, and this client has max_ttl=30" in status["problem"]


def test_the_masters_that_may_vote_are_no_quorum(valkey: Masters, first_three: list[str], raw: Raw) -> None:
    """One master has a record that cannot be read. Of the two others one is down."""
    raw(valkey)[2].set(KEY, "damaged")
    code, status = status_of(first_three)
    assert (code, [bool(one["no_vote"]) for one in status["masters"]]) == (0, [False, False, True])
    valkey[0].kill()
    code, status = status_of(first_three)
    assert (code, status["usable"], status["refused"]) == (69, False, False)


@pytest.mark.parametrize("setting", ["off", "auto", "strict"])
def test_it_does_as_the_settings_say(
    valkey: Masters, first_three: list[str], records: Records, tmp_path: Path, setting: str
) -> None:
    before = records()
    file = tmp_path / "locks.toml"
    file.write_text(f"[redlock-fast]\nassume_fresh = true\ncheck_masters = '{setting}'\n")
    code, status = status_of(valkey.urls, "--config", str(file))
    assert (code, status["usable"]) == ((0, True) if setting == "off" else (64, False))
    assert records() == before


def test_masters_without_records(valkey: Masters, records: Records) -> None:
    code, status = status_of(valkey.urls)
    assert (code, status["usable"]) == (0, True)
    assert [(one["listed"], one["no_vote"]) for one in status["masters"]] == [(None, "")] * 5
    assert records() == [None] * 5
