"""A term of a leader by the clock, without masters."""

from __future__ import annotations

import pytest
from support.inside import core_of

from redlock_fast import ConfigError, FastRedlock
from redlock_fast.algorithm.lease import Lease
from redlock_fast.locks.leader import STEPPED_DOWN, Term


class Held:
    """A lock with so many seconds left."""

    fencing_token = 7

    def __init__(self, left: float) -> None:
        self.left = left
        self._lease: Lease | None = Lease(b"chair", b"token", 7, 10.0, left, left)

    def remaining(self) -> float:
        return self.left


@pytest.fixture
def lock() -> Held:
    return Held(10.0)


@pytest.fixture
def term(lock: Held) -> Term:
    return Term(core_of(FastRedlock(["redis://a"])), lock, notice=2.0)


def test_it_ends_ahead_of_its_lease(term: Term, lock: Held) -> None:
    assert term.leads()
    assert term.left() == 8.0
    lock.left = 2.0
    assert not term.leads()


def test_a_term_that_was_seen_over_stays_over(term: Term, lock: Held) -> None:
    """Also if an extension is confirmed after that: an earlier look has stopped the work."""
    lock.left = 1.0
    assert not term.leads()
    lock.left = 9.0
    assert not term.leads()
    assert not term.end(STEPPED_DOWN)
    assert term.reason == ""


def test_the_first_end_gives_the_reason(term: Term) -> None:
    assert term.end(STEPPED_DOWN, pause=3.0)
    assert not term.end("another")
    assert (term.reason, term.pause, term.leads()) == (STEPPED_DOWN, 3.0, False)


def test_a_released_lease_and_a_closed_client(term: Term, lock: Held) -> None:
    """The end of the interpreter releases leases without their locks."""
    assert lock._lease is not None
    lock._lease.released = True
    assert not term.leads()
    client = FastRedlock(["redis://a"])
    other = Term(core_of(client), Held(10.0), notice=0.0)
    assert other.leads()
    client.close()
    assert not other.leads()


@pytest.mark.parametrize(("drift_factor", "longest"), [(0.0, 5.0), (0.01, 5.0), (0.3, 3.936), (0.5, 2.811)])
def test_a_notice_leaves_time_for_renewal(drift_factor: float, longest: float) -> None:
    """Catches: with ``drift_factor=0.5`` a notice of half of the ttl is all of the lease: each election ends
    at once, and the next follows, hundreds of them in a second.
    """
    client = FastRedlock(["redis://a"], drift_factor=drift_factor)
    client.leader("chair", 10.0, notice=longest)
    with pytest.raises(ConfigError, match="notice"):
        client.leader("chair", 10.0, notice=longest + 0.001)
