"""Hostile masters cost their votes, and nothing else: no memory beyond a bound, no time of the others."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.certificates import Certificates
from support.engines import engines
from support.hostile import ATTACKS, BIG, FATAL, SLOW, Flooding, Hostile
from support.python_process import run_python, support_program
from support.tls_flood import prepared

from redlock_fast.embedded import Masters

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MEGABYTE = 1 << 20
#: For four hostile masters together. What one may have is a push of 128 KB and what is read in one go.
MOST = 32 * MEGABYTE
#: Seconds for an acquire, on a busy machine, while masters send as fast as they can.
SOON = 5.0
#: Seconds without a reply after which a connection is given up.
PATIENCE = 1.0
AT_ONCE = 4
#: An attack below the replies: ``Flooding``.
TLS = "tls"

Attacked = Callable[..., dict[str, Any]]


def groups(names: dict[str, Any]) -> list[list[str]]:
    every = list(names)
    return [every[at : at + AT_ONCE] for at in range(0, len(every), AT_ONCE)]


@pytest.fixture
def attacked(valkey: Masters, engine_name: str, tmp_path: Path) -> Iterator[Attacked]:
    """``attacked(attacks, trigger)``: what support.worker_hostile measured."""
    with contextlib.ExitStack() as stack:

        def run(
            attacks: list[str], trigger: bytes, error: str = "", tls: Certificates | None = None
        ) -> dict[str, Any]:
            bad = [
                Flooding(trigger, prepared(tls.server(), tmp_path))
                if tls and name == TLS
                else Hostile({**ATTACKS, **BIG}[name], trigger, tls and tls.server())
                for name in attacks
            ]
            for one in bad:
                stack.callback(one.close)
            url = (
                f"rediss://127.0.0.1:{{}}?ssl_ca_certs={tls.path('ca.crt')}"
                if tls
                else "redis://127.0.0.1:{}"
            )
            setting = {
                "good": valkey.urls,
                "bad": [url.format(one.port) for one in bad],
                "engine": engine_name,
                "outage_timeout": PATIENCE,
                "error": error,
                "seconds": 30 if attacks[0] not in BIG else 3,
            }
            done = run_python(
                **support_program("worker_hostile", setting),
                capture_output=True,
                text=True,
                timeout=100,
            )
            assert done.returncode == 0, done.stderr
            numbers: dict[str, Any] = json.loads(done.stdout)
            return numbers

        yield run


def check(numbers: dict[str, Any]) -> None:
    assert numbers["grown"] < MOST, numbers
    assert numbers["slowest"] < SOON, numbers


def check_errors(numbers: dict[str, Any], error: str = "") -> None:
    """``error`` was the fault of each hostile master once; a busy machine may fail to connect to it later."""
    check(numbers)
    assert all(any(error in one for one in found) for found in numbers["errors"].values()), numbers


@pytest.mark.parametrize("attacks", groups(FATAL), ids=" + ".join)
def test_attack_in_place_of_a_reply(attacked: Attacked, attacks: list[str]) -> None:
    check_errors(attacked(attacks, b"ACQUIRE", "protocol error"), "protocol error")


@pytest.mark.parametrize("attacks", groups(SLOW), ids=" + ".join)
def test_noise_in_place_of_a_reply(attacked: Attacked, attacks: list[str]) -> None:
    check_errors(attacked(attacks, b"ACQUIRE", "no reply for"), "no reply for")


def test_replies_as_long_as_they_may_be(attacked: Attacked) -> None:
    # Each answers a request, as long as there is one: faults, and nothing to disconnect for.
    check(attacked(["big replies"] * AT_ONCE, b"ACQUIRE"))


@pytest.mark.parametrize("attacks", [["endless replies", "pushes", "dribble"]], ids=" + ".join)
def test_attack_over_tls(attacked: Attacked, authority: Certificates, attacks: list[str]) -> None:
    check_errors(attacked(attacks, b"ACQUIRE", tls=authority))


@pytest.mark.parametrize("trigger", [b"ACQUIRE", b"HELLO"])
def test_attack_by_messages_of_tls(attacked: Attacked, authority: Certificates, trigger: bytes) -> None:
    error = "too much TLS without data"
    check_errors(attacked([TLS], trigger, error, authority), error)


@pytest.mark.parametrize(
    ("trigger", "engine_name"),  # no engine takes part in dialling
    [(b"HELLO", engines()[0]), (b"ROLE", engines()[-1])],
    indirect=["engine_name"],
    ids=["HELLO", "ROLE"],
)
@pytest.mark.parametrize("attacks", groups(ATTACKS), ids=" + ".join)
def test_attack_during_connect(attacked: Attacked, trigger: bytes, attacks: list[str]) -> None:
    check_errors(attacked(attacks, trigger))
