"""Fencing tokens rise although masters lose their counters, and although their clocks differ.

A clock that is ahead is put in place by what it would have left: the counter.
"""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
import redis
from support.event_loops import Plain
from support.makers import MakeClient, MakePlain, Raw
from support.waiting import eventually

from redlock_fast import QuorumUnavailable
from redlock_fast.embedded import Masters
from redlock_fast.wire.dialect import FENCE, RAISE_FENCE

KEY, COUNTER = "r", "{r}:f"
#: Seconds. The clocks differ by a little less than what is tolerated.
MAX_TTL, TTL = 2.0, 1.5
SKEW = 0.475 * MAX_TTL
#: Milliseconds.
DAY = 24 * 3600 * 1000
#: As masters' clocks and counters go.
SECOND = 1_000_000


def clock(node: redis.Redis) -> int:
    """The master's time in microseconds."""
    seconds, microseconds = node.time()
    return int(seconds) * SECOND + int(microseconds)


def token_of(c: Plain) -> int | None:
    """The token of one grant, which is given back; None: refused."""
    lock = c.client.lock(KEY, fencing=True)
    try:
        if not c.wait(lock.acquire(blocking=False)):
            return None
    except QuorumUnavailable:
        return None
    token = lock.fencing_token
    c.wait(lock.release())
    return int(token)


def next_token(c: Plain) -> int:
    """As ``token_of``, as soon as the guard allows it."""
    found: list[int] = []

    def granted() -> bool:
        token = token_of(c)
        found.extend([token] if token else [])
        return bool(token)

    eventually(granted, "the lock is granted again")
    return found[0]


def lost_token(c: Plain, nodes: list[redis.Redis]) -> int:
    """A token that the first two of three masters vouch for, of which the first one's clock is ahead."""
    ahead, _, other = nodes
    ahead.set(COUNTER, clock(ahead) + round(SKEW * SECOND))
    other.set(COUNTER, clock(other))
    other.set(KEY, "another", px=DAY)
    token = next_token(c)
    other.delete(KEY)
    return token


def begin_too_early(client: MakeClient, urls: list[str]) -> None:
    """What requests that were on their way when these masters forgot leave behind: a counter on each."""
    for url in urls:
        with client([url], ttl=TTL, max_ttl=MAX_TTL).lock(KEY, timeout=30, fencing=True) as lock:
            assert lock.fencing_token


def test_tokens_rise_though_a_lost_counter_began_too_early(
    masters: Masters, plain: MakePlain, client: MakeClient, raw: Raw
) -> None:
    """Two of three masters lose the token. The client that saw it trusts them again later on."""
    nodes = raw(masters)[:3]
    c = plain(masters.urls[:3], ttl=TTL, max_ttl=MAX_TTL).at_full_strength()
    lost = lost_token(c, nodes)
    for master in list(masters)[:2]:
        master.kill()
        master.restart()
    begin_too_early(client, masters.urls[:2])
    assert next_token(c) > lost


def test_tokens_rise_over_a_flush_a_restart_and_a_new_process(
    masters: Masters, plain: MakePlain, client: MakeClient, raw: Raw
) -> None:
    """The new process begins as late as those that saw the flush would trust the master again."""
    nodes = raw(masters)[:3]
    lost = lost_token(plain(masters.urls[:3], ttl=TTL, max_ttl=MAX_TTL).at_full_strength(), nodes)
    masters[0].kill()
    masters[0].restart()
    nodes[1].flushall()
    begin_too_early(client, masters.urls[:2])
    trusted = time.monotonic() + MAX_TTL
    eventually(lambda: time.monotonic() >= trusted, "max_ttl has gone by")
    new = plain(masters.urls[:3], ttl=TTL, max_ttl=MAX_TTL).at_full_strength()
    assert next_token(new) > lost


def test_a_new_process_that_begins_at_once_is_known_by_the_marker(
    masters: Masters, plain: MakePlain, raw: Raw
) -> None:
    """It has not seen what happened before: of the guards, only the marker has."""
    options = {"ttl": TTL, "max_ttl": MAX_TTL, "restart_guard": "marker"}
    c = plain(masters.urls[:3], **options, assume_fresh=True).at_full_strength()
    nodes = raw(masters)[:3]
    lost = lost_token(c, nodes)
    masters[0].kill()
    masters[0].restart()
    nodes[1].flushall()
    new = plain(masters.urls[:3], **options)
    assert next_token(new) > lost


def test_tokens_rise_though_a_master_becomes_a_copy_of_another(
    masters: Masters, plain: MakePlain, raw: Raw
) -> None:
    """Its counter is that of the other one, which did not vouch for the last token."""
    nodes = raw(masters)[:3]
    c = plain(masters.urls[:3], ttl=TTL, max_ttl=MAX_TTL).at_full_strength()
    lost = lost_token(c, nodes)
    nodes[1].replicaof("127.0.0.1", str(masters[2].port))
    eventually(lambda: nodes[1].get(COUNTER) == nodes[2].get(COUNTER), "it is a copy")
    nodes[1].replicaof("NO", "ONE")
    masters[0].kill()
    assert next_token(c) > lost


@pytest.mark.usefixtures("all_masters")
def test_a_counter_is_at_most_a_step_behind_the_clock(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    """A step is half of max_ttl."""
    nodes = raw(masters)
    c = plain(masters, ttl=60.0, max_ttl=600.0, decide="all").at_full_strength()
    for behind in (301 * SECOND, 3600 * SECOND):
        before = clock(nodes[0])
        for node in nodes:
            node.set(COUNTER, before - behind)
        token = token_of(c)
        assert token
        assert token > before - 300 * SECOND
        assert token % (300 * SECOND) == 0
        assert [int(node.get(COUNTER)) for node in nodes] == [token] * 5


@pytest.mark.usefixtures("all_masters")
def test_masters_agree_on_the_number_in_one_round_trip(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    """Behind the clock by less than a step they count."""
    nodes = raw(masters)
    c = plain(masters, ttl=60.0, max_ttl=600.0, decide="all").at_full_strength()
    now = clock(nodes[0])
    number = now - now % (300 * SECOND)
    for node in nodes:
        node.set(COUNTER, number)
    for count in range(1, 4):
        assert token_of(c) in (number + count, number + 300 * SECOND + count), "or a step has just begun"


def test_a_counter_is_not_set_back_to_the_clock(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    nodes = raw(masters)
    c = plain(masters, ttl=60.0).at_full_strength()
    number = clock(nodes[0]) + 3600 * SECOND
    for node in nodes:
        node.set(COUNTER, number)
    assert token_of(c) == number + 1


@pytest.mark.usefixtures("all_masters")
@pytest.mark.parametrize("count", [3, 5])
def test_a_minority_that_is_far_ahead_decides_no_token(
    masters: Masters, plain: MakePlain, raw: Raw, count: int
) -> None:
    """Its counter is near the largest number that a counter may have."""
    nodes = raw(masters)[:count]
    c = plain(masters.urls[:count], ttl=60.0).at_full_strength()
    bad = (count - 1) // 2
    tokens = []

    def counted() -> list[bool]:
        return ["fencing counter" in master.causes for master in c.client.health()]

    def counted_after_a_grant() -> bool:
        """A bad master that replies after the others has no vote in that grant."""
        tokens.append(token_of(c))
        return any(counted()[:bad])

    for number in range(30):
        if number % 10 == 0:
            for node in nodes[:bad]:
                node.set(COUNTER, 2**53 - 20)
        tokens.append(token_of(c))
    eventually(counted_after_a_grant, "a bad master is counted")
    assert not any(counted()[bad:])
    assert all(tokens), "no acquire failed"
    assert all(one < other for one, other in pairwise(tokens))
    assert tokens[-1] < clock(nodes[-1]) + SECOND, "the other clocks decide"
    assert all(int(node.get(COUNTER)) < clock(node) + SECOND for node in nodes[bad:])
    for node in nodes[:bad]:
        node.delete(COUNTER)
    assert token_of(c) > tokens[-1], "the operator has deleted the counters that are ahead"


@pytest.mark.usefixtures("all_masters")
def test_a_master_that_is_far_ahead_decides_no_token_of_two_lists(
    masters: Masters, plain: MakePlain, raw: Raw
) -> None:
    """While the set of masters changes, two refusals do not end the round before the fourth reply."""
    nodes, urls = raw(masters), masters.urls[:4]
    c = plain(urls, joint_with=urls[:3], ttl=60.0, node_timeout=20.0).at_full_strength()
    for _ in range(10):
        nodes[0].set(COUNTER, 2**53 - 1000)
        assert token_of(c)
        assert all(int(node.get(COUNTER) or 0) < clock(node) + SECOND for node in nodes[1:4])


@pytest.mark.usefixtures("all_masters")
@pytest.mark.parametrize("ahead", [10, 31, 45, 59, 61, 3600])
def test_counters_that_are_all_ahead_count_on(
    masters: Masters, plain: MakePlain, raw: Raw, ahead: int
) -> None:
    """The clocks were set back. The counters differ as the clocks did, and by attempts that failed."""
    nodes = raw(masters)
    c = plain(masters, ttl=60.0).at_full_strength()
    last = clock(nodes[0]) + ahead * SECOND
    for attempts, node in enumerate(nodes):
        node.set(COUNTER, last + 20_000 * attempts)
    for _ in range(20):
        token = token_of(c)
        assert token
        assert token > last
        last = token


def test_a_lift_goes_as_far_as_clocks_may_differ(masters: Masters, raw: Raw) -> None:
    """A step above the clock; a counter that is itself ahead, a little. A refusal tells the counter."""
    node = raw(masters)[0]
    node.set(KEY, "token", px=DAY)

    def lift(number: int) -> int:
        return int(node.eval(RAISE_FENCE.text, 2, KEY, COUNTER, "token", number, DAY, 30_000))

    now = clock(node)
    node.set(COUNTER, now)
    assert lift(2**53 - 20) == lift(now + 3600 * SECOND) == -now
    assert lift(now + 29 * SECOND) == 1
    assert lift(now + 29 * SECOND) == -(now + 29 * SECOND)
    ahead = now + 3600 * SECOND
    node.set(COUNTER, ahead)
    assert lift(ahead + 100_001) == -ahead
    assert lift(ahead + 100_000) == 1


def test_a_lift_does_not_shorten_the_retention_of_a_counter(masters: Masters, raw: Raw) -> None:
    """Other clients may have a longer one."""
    node = raw(masters)[0]
    keys = (2, KEY, COUNTER)
    node.set(COUNTER, 70, px=3 * DAY)
    node.set(KEY, "token", px=DAY)
    assert node.eval(RAISE_FENCE.text, *keys, "token", 80, 5_000, 30_000) == 1
    assert node.pttl(COUNTER) > 2 * DAY
    assert node.eval(RAISE_FENCE.text, *keys, "token", 90, 5 * DAY, 30_000) == 1
    assert node.pttl(COUNTER) > 4 * DAY


@pytest.mark.parametrize("number", [0, 3600 * SECOND], ids=["set to the clock", "counted"])
def test_a_grant_does_not_shorten_the_retention_of_a_counter(
    masters: Masters, plain: MakePlain, raw: Raw, number: int
) -> None:
    """The ``fencing_retention`` of another client may be longer."""
    nodes = raw(masters)
    for node in nodes:
        node.set(COUNTER, clock(node) - SECOND + number, px=3 * DAY)
    assert token_of(plain(masters, ttl=60.0, fencing_retention=60.0).at_full_strength())
    assert all(node.pttl(COUNTER) > 2 * DAY for node in nodes)


def test_only_a_master_whose_counter_was_moved_to_the_token_vouches(masters: Masters, raw: Raw) -> None:
    node = raw(masters)[0]

    def lift(token: str, number: int) -> int:
        return int(node.eval(RAISE_FENCE.text, 2, KEY, COUNTER, token, number, DAY, 30_000))

    node.set(COUNTER, 70)
    assert lift("token", 80) == 0, "it does not hold the key"
    node.set(KEY, "token", px=DAY)
    assert lift("another", 80) == 0
    assert lift("token", 69) == lift("token", 70) == -70, "an equal or a larger counter was moved by another"
    assert node.get(COUNTER) == b"70"
    assert lift("token", 71) == 1
    assert node.get(COUNTER) == b"71"
    node.delete(COUNTER)
    assert lift("token", 80) == 0, "it forgot"
    assert not node.exists(COUNTER)
    for value in ("-7", "1e300", "inf", "x"):
        node.set(COUNTER, value)
        assert lift("token", 80) == 0, "it is no counter"


@pytest.mark.parametrize(
    "value",
    ["", " 7", "7 ", "7x", "7e3", "9007199254740991", "-9007199254740995", "9223372036854775807", None],
)
def test_a_counter_that_is_none_leaves_no_key(masters: Masters, raw: Raw, value: str | None) -> None:
    """Neither what is no number, nor what cannot be counted on exactly."""
    node = raw(masters)[0]
    if value is None:
        node.rpush(COUNTER, "7")
    else:
        node.set(COUNTER, value)
    for _ in range(2):
        with pytest.raises(redis.ResponseError):
            node.eval(FENCE.text, 2, KEY, COUNTER, "token", 60_000, DAY, 30_000)
        assert not node.exists(KEY)
