"""``redlock-fast`` with ``replicas``: in the URL of the one master, and in the configuration file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import Command, sh
from support.sentinel import QUICK_REPLICATION, replicate
from support.waiting import PATIENT, eventually

from redlock_fast.cli.exit_codes import UNAVAILABLE
from redlock_fast.embedded import Masters


@pytest.fixture(params=["valkey", "redis"])
def pair(request: pytest.FixtureRequest) -> Iterator[Masters]:
    """A master and its replica, which has its data."""
    with Masters(2, server=request.param, options=QUICK_REPLICATION) as fleet:
        replicate(list(fleet), fleet[0].port)
        yield fleet


@pytest.mark.parametrize("place", ["url", "file"])
def test_status_and_exec_need_the_replica(
    pair: Masters, engine_name: str, tmp_path: Path, place: str
) -> None:
    """Catches: ``replicas`` that the command line leaves out; an operator who is not told of the replica."""
    query, options = ("?replicas=1", {}) if place == "url" else ("", {"replicas": 1})
    command = Command(None, engine_name).with_options(tmp_path, **PATIENT, **options)
    command.environment["REDLOCK_FAST_MASTERS"] = pair[0].url + query
    held = sh("echo held")
    assert command.run("exec", "job", "--timeout", "60", *held) == (0, "held\n", "")
    eventually(lambda: command.run("status")[0] == 0, "the replica answers in its time", deadline=60.0)
    pair[1].pause()
    code, out, err = command.run("exec", "job", "--timeout", "2", *held)
    assert (code, out) == (UNAVAILABLE, "")
    assert "NOREPLICAS 0 of 1 replicas acknowledged the grant in time" in err
    code, out, _ = command.run("status")
    assert code == UNAVAILABLE
    assert "NOT usable: " in out
    assert "NOREPLICAS" in out
    pair[1].resume()
