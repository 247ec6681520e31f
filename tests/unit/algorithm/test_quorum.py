"""The numbers of the algorithm."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redlock_fast.algorithm.quorum import (
    EXPIRY_GRANULARITY,
    Retry,
    deadline,
    drift,
    milliseconds,
    quorum,
    wake_jitter,
    window,
)

ttls = st.floats(0.001, 86_400)
factors = st.floats(0, 0.5)


@pytest.mark.parametrize("masters", range(1, 10))
def test_two_quorums_share_a_master(masters: int) -> None:
    groups = [set(group) for group in combinations(range(masters), quorum(masters))]
    assert all(one & other for one in groups for other in groups)


@pytest.mark.parametrize("masters", range(2, 10))
def test_no_smaller_number_is_a_quorum(masters: int) -> None:
    fewer = quorum(masters) - 1
    groups = [set(group) for group in combinations(range(masters), fewer)]
    assert not all(one & other for one in groups for other in groups)


@pytest.mark.parametrize("masters", range(1, 64))
def test_quorum_is_a_strict_majority(masters: int) -> None:
    assert 2 * quorum(masters) > masters >= quorum(masters)
    assert 2 * (quorum(masters) - 1) <= masters


@given(ttl=ttls, factor=factors)
def test_drift_is_the_factor_and_the_granularity(ttl: float, factor: float) -> None:
    assert drift(ttl, factor) == pytest.approx(ttl * factor + 0.002)
    assert drift(ttl, factor) >= EXPIRY_GRANULARITY == 0.002


@given(start=st.floats(0, 1e7), ttl=ttls, factor=factors)
def test_deadline_is_before_any_master_lets_go(start: float, ttl: float, factor: float) -> None:
    # A master starts to count after ``start`` and may run faster by ``factor``.
    end = deadline(start, ttl, factor)
    assert end == pytest.approx(start + ttl - (ttl * factor + 0.002))
    assert end <= start + ttl * (1 - factor)


def test_deadline_in_numbers() -> None:
    assert deadline(100.0, 10.0, 0.01) == pytest.approx(109.898)


@pytest.mark.parametrize(
    ("ttl", "wire"),
    [
        (0.1, 100), (0.0101, 11), (10, 10_000), (10.0, 10_000), (0.001, 1), (0.0011, 2), (1.1, 1100),
        (0.29, 290), (4.35, 4350), (1.0000001, 1001),
        (86_400.0, 86_400_000), (0.0029999, 3), (2.3, 2300), (1 / 3, 334),
    ],
)  # fmt: skip
def test_milliseconds_are_rounded_up_and_not_off_by_the_last_bit(ttl: float, wire: int) -> None:
    assert milliseconds(ttl) == wire


@given(st.integers(1, 86_400_000))
def test_whole_milliseconds_stay_what_they_are(wire: int) -> None:
    assert milliseconds(wire / 1000) == wire


@given(ttls)
def test_wire_is_never_shorter_than_the_lease(ttl: float) -> None:
    # A nanosecond is allowed for: seconds as floats are not exact.
    wire = milliseconds(ttl)
    exact = Fraction(ttl) * 1000
    assert Fraction(wire) >= exact - Fraction(1, 10**6)
    assert wire < exact + 1 + Fraction(1, 10**6)


retries = st.builds(Retry, st.floats(0.0001, 1), st.floats(0.0001, 10)).filter(
    lambda retry: retry.min_delay <= retry.max_delay
)


@given(
    retry=retries,
    attempt=st.integers(1, 10_000),
    round_time=st.floats(0, 20),
    chance=st.floats(0, 0.999999),
    splits=st.integers(0, 10_000),
)
def test_delay_stays_between_its_ends(
    retry: Retry, attempt: int, round_time: float, chance: float, splits: int
) -> None:
    delay = retry.delay(attempt, round_time, chance, splits)
    low = max(retry.min_delay, round_time)
    assert math.isfinite(delay)
    assert delay >= low or delay == pytest.approx(low)
    high = max(retry.max_delay, low + window(round_time, splits))
    assert delay <= high or delay == pytest.approx(high)


@pytest.mark.parametrize("wake_up", [False, True])
@pytest.mark.parametrize("round_time", [0.0003, 0.02, 0.16, 1.0])
def test_pauses_are_spread_over_some_round_trips(round_time: float, wake_up: bool) -> None:
    """Catches: one value for all clients, where a round takes longer than the largest upper end."""
    ends = [
        wake_jitter(splits, round_time, chance)
        if wake_up
        else Retry().delay(10, round_time, chance, splits) - max(round_time, Retry().min_delay)
        for splits in (0, 1, 2, 4)
        for chance in (0.0, 1.0)
    ]
    assert ends[::2] == pytest.approx([0.0] * 4)
    assert min(ends[1::2]) >= 4 * round_time - 1e-9
    assert ends[1::2] == sorted(ends[1::2])
    if round_time >= 0.02:
        assert ends[7] >= 1.1 * ends[3] or wake_up


@given(retry=retries, attempt=st.integers(1, 100), round_time=st.floats(0, 1), low=st.floats(0, 0.5))
def test_delay_grows_with_chance_and_with_the_attempt(
    retry: Retry, attempt: int, round_time: float, low: float
) -> None:
    delay = retry.delay(attempt, round_time, low)
    assert retry.delay(attempt, round_time, low + 0.4) >= delay
    assert retry.delay(attempt + 1, round_time, low) >= delay


def test_upper_end_doubles_up_to_the_cap() -> None:
    retry = Retry(0.005, 0.2)
    tops = [retry.delay(attempt, 0.0, 1.0) for attempt in range(1, 9)]
    assert tops == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.16, 0.2, 0.2, 0.2])
    assert [retry.delay(attempt, 0.0, 0.0) for attempt in (1, 5, 1000)] == [0.005] * 3


def test_delays_are_spread_over_the_whole_range() -> None:
    retry = Retry(0.01, 0.5)
    delays = [retry.delay(6, 0.02, chance / 100) for chance in range(100)]
    assert delays[0] == pytest.approx(0.02)
    assert len(set(delays)) == 100
    steps = [b - a for a, b in pairwise(delays)]
    assert steps == pytest.approx([steps[0]] * 99)
