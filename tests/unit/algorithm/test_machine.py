"""What a lock takes from the machine. Compiled modules use the same functions in C."""

from __future__ import annotations

import itertools
import threading

from redlock_fast.algorithm import machine
from redlock_fast.algorithm.policy import Policy, VotingMasters, lease_clock
from redlock_fast.algorithm.quorum import Retry
from redlock_fast.algorithm.redlock import _now


def test_one_clock() -> None:
    """Leases are compared with times by any of these clocks."""
    readings = []
    policy = Policy(0.05, 0.01, 1.0, Retry(), VotingMasters(5))
    for _ in range(100):
        readings += [lease_clock(), _now(policy), machine.boot_time(), machine.boot_time_ns() / 1e9]
    for before, after in itertools.pairwise(readings):
        assert -1e-6 < after - before < 1.0


def test_a_lease_is_measured_by_one_clock() -> None:
    """A start by one clock and an end by another one would make a lease too long where they differ."""
    assert lease_clock is machine.boot_time


def test_another_clock_is_asked() -> None:
    policy = Policy(0.05, 0.01, 1.0, Retry(), VotingMasters(5), clock=lambda: 17.0)
    assert _now(policy) == 17.0


def test_joined() -> None:
    assert machine.joined(b"a" * 12, 0x0102, b"end")[12:] in (
        b"\x02\x01" + bytes(6) + b"end",
        bytes(6) + b"\x01\x02end",
    )


def test_thread() -> None:
    assert machine.thread_id() == threading.get_ident()
