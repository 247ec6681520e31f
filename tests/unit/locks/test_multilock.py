"""Several resources at once: what is asked, what is learnt from refusals, and when the lease is held."""

from __future__ import annotations

from collections.abc import Generator
from itertools import product
from typing import Any

import pytest
from support import bare
from support.cases import cases
from support.inside import core_of
from support.votes import votes

from redlock_fast import ConfigError, FastRedlock, ShardedRedlock
from redlock_fast.algorithm import batch as batches
from redlock_fast.algorithm import procedures
from redlock_fast.algorithm.lease import ExtendOutcome, Lease, lease_of
from redlock_fast.algorithm.lock_kind import LockKind
from redlock_fast.algorithm.master_lists import MasterLists
from redlock_fast.algorithm.policy import Policy, VotingMasters
from redlock_fast.algorithm.quorum import Retry
from redlock_fast.engine.contract import FAULT, MAX_OWED, NO_REPLY, Votes
from redlock_fast.locks.multilock import (
    MOST_BYTES,
    MOST_RESOURCES,
    MultiLeaseKind,
    MultiLockKind,
    multi_lock_kind,
)
from redlock_fast.wire.commands import Verb

URLS = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]
TTL = 10.0


def policy() -> Policy:
    return Policy(1.0, 0.01, 1.0, Retry(), VotingMasters(3), clock=lambda: 100.0)


def granted(lock_kind: LockKind) -> Lease:
    return lease_of(lock_kind, b"token", 0b111, TTL, 105.0, 5.0)


def answered(procedure: Generator[Any, Any, Any], answers: list[Votes]) -> Any:
    """What it returns when its one exchange has these answers."""
    procedure.send(None)
    with pytest.raises(StopIteration) as done:
        procedure.send(answers)
    return done.value.value


def test_one_request_asks_for_all_and_one_takes_back_all() -> None:
    lock_kind = MultiLockKind((b"a", b"b"))
    ask = lock_kind.acquire_request(b"token", b"1500", 0b111)
    (undo,) = lock_kind.release_requests(b"token", 0b101, 2.0)
    assert (ask.verb, undo.verb) == (Verb.ACQUIRE_ALL, Verb.RELEASE_ALL)
    assert ask.args[4] == b"$1\r\na\r\n$1\r\nb\r\n"
    assert ask.args[:6] == undo.args[:6]
    assert len(ask.args) == len(undo.args), "the engine undoes with the arguments of the acquire"
    assert (undo.masters, undo.resend_for) == (0b101, 2.0)


def test_what_is_granted_is_a_lock_on_each() -> None:
    held = MultiLockKind((b"a", b"b")).for_attempt().held_kind()
    assert held.request_count == 2
    assert [(r.verb, r.args) for r in held.release_requests(b"t", 7, 1.0)] == [
        (Verb.RELEASE, (b"a", b"t")),
        (Verb.RELEASE, (b"b", b"t")),
    ]
    assert [(r.verb, r.args) for r in held.extend_requests(b"t", b"9", 7)] == [
        (Verb.EXTEND, (b"a", b"t", b"9")),
        (Verb.EXTEND, (b"b", b"t", b"9")),
    ]
    assert (held.key_bytes, held.batchable) == (2, False)


def test_it_waits_for_what_most_masters_refused() -> None:
    lock_kind = MultiLockKind((b"a", b"b", b"c"))
    first, second = lock_kind.for_attempt(), lock_kind.for_attempt()
    first.observe(votes(-2, -3, -3), MasterLists(3))
    assert first.watch_request(0b111).args == (b"c",)
    first.observe(votes(1, FAULT, NO_REPLY), MasterLists(3))
    assert first.watch_request(0b111).args == (b"c",), "no new reply came"
    first.observe(votes(-2, FAULT, -2), MasterLists(3))
    assert first.watch_request(0b111).args == (b"b",)
    assert second.watch_request(0b111).args == (b"a",), "each acquisition learns for itself"
    first.observe(votes(-4, -5000, 1), MasterLists(3))
    assert first.watch_request(0b111).args == (b"b",), "a master may say any number"
    assert (first.queue_key, MultiLockKind((b"a",)).queue_key) == ((b"a", b"b", b"c"), b"a")


@cases("pattern", list(product([0, 1], repeat=6)))
def test_held_while_each_resource_has_a_quorum(pattern: tuple[int, ...]) -> None:
    """All 64 ways in which three masters may have lost two keys: 16 leave it held, only 10 by whole sets."""
    ours = pattern[:3], pattern[3:]
    held = all(sum(one) >= 2 for one in ours)
    answers = [votes(*one) for one in ours]
    two = MultiLeaseKind(b"ab", (b"a", b"b"))
    outcome, _ = answered(procedures.extend(policy(), granted(two), TTL, []), answers)
    assert outcome is (ExtendOutcome.EXTENDED if held else ExtendOutcome.LOST)
    assert answered(bare.release(policy(), granted(two)), answers) == held
    leases = [granted(LockKind(b"p")), granted(two)]
    assert answered(batches.extend(policy(), leases, [TTL, TTL], []), [votes(1, 1, 1), *answers]) == [
        ExtendOutcome.EXTENDED,
        outcome,
    ]
    assert answered(batches.release(policy(), leases), [votes(1, 1, 1), *answers]) == [True, held]


def test_too_few_answers_for_one_resource_decide_nothing() -> None:
    lease = granted(MultiLeaseKind(b"ab", (b"a", b"b")))
    answers = [votes(1, 1, 1), votes(1, FAULT, FAULT)]
    outcome, _ = answered(procedures.extend(policy(), lease, TTL, []), answers)
    assert outcome is ExtendOutcome.INCONCLUSIVE
    assert lease.deadline == 105.0


def test_batches_stay_within_what_an_engine_carries() -> None:
    keys = tuple(b"%d" % number for number in range(MOST_RESOURCES))
    large = granted(MultiLeaseKind(b"large", keys))
    plain = granted(LockKind(b"p"))
    leases = [plain, *[large] * 100, plain]
    parts = list(batches.parts_of(leases))
    assert [lease for part in parts for lease in leases[part]] == leases
    assert (
        max(sum(lease.lock_kind.request_count for lease in leases[part]) for part in parts)
        <= batches.MOST
        < MAX_OWED
    )
    wide = granted(MultiLeaseKind(b"wide", (b"x" * MOST_BYTES,)))
    assert [part.stop - part.start for part in batches.parts_of([wide] * 9)] == [4, 4, 1]
    assert list(batches.parts_of([])) == []


def test_bad_input(engine_name: str) -> None:
    with FastRedlock(URLS, engine=engine_name) as client:
        for resources, words in (
            ("ab", "must be a list"),
            ([], "1 to 1000"),
            ([f"{number}" for number in range(1001)], "1 to 1000"),
            (["a", "b", b"a"], "resources: 'a' is there twice"),
            (["a", ""], "resource must have"),
            (["a", 1], "resource"),
            ([f"{number}" + "x" * 60_000 for number in range(20)], "1048576 bytes"),
        ):
            with pytest.raises(ConfigError, match=words):
                client.multilock(resources)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"multilock\(\) has no option 'fencing'; it has: .*timeout"):
            client.multilock(["a"], fencing=True)
        with pytest.raises(ConfigError, match="auto_extend"):
            client.multilock(["a"], max_hold=3.0)
        lock = client.multilock(["b", b"a"])
        assert lock.resource == ("b", b"a")
        assert lock.key == b"a and 1 more"
        assert client.multilock(["one"]).key == b"one"
        assert multi_lock_kind(core_of(client), ["b", "a"]).keys == (b"a", b"b")


def test_only_within_one_group(engine_name: str) -> None:
    with ShardedRedlock({"x": URLS[:1], "y": URLS[1:2]}, engine=engine_name) as client:
        names = [f"r:{number}" for number in range(20)]
        own = [name for name in names if client.group_of(name) == "x"]
        assert client.multilock(own).resource == tuple(own)
        with pytest.raises(ConfigError, match=r"one group of masters, and 'r:\d+' to 'x', 'r:\d+' to 'y'"):
            client.multilock(names)
        with pytest.raises(ConfigError, match="1 to 1000"):
            client.multilock([])
        with pytest.raises(ConfigError, match="there twice"):
            client.multilock(["a", "a"])
