"""Rule 15: a grant counts when replicas have it. One WAIT for a flush, and one is pending at most."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from support.fleet import (
    SOON,
    Fleet,
    MakeFleet,
    acquire,
    acquires,
    del_words,
    keys,
    release,
    set_words,
)
from support.miniloop import Loop
from support.scripted import Words, silent
from support.waiting import DEADLINE, start

from redlock_fast.engine.contract import FAULT, Request, Votes
from redlock_fast.wire.commands import Dialect, Verb
from redlock_fast.wire.dialect import WRITE, Acknowledgement, Capabilities, dialect

KEY = b"redlock-fast:wait"
REPLICAS: Dialect = dialect(Capabilities(delifeq=True), acknowledgement=Acknowledgement(2, 16, KEY))
#: A write and WAIT, as a master sees them.
WAITING: list[Words] = [(b"EVAL", WRITE.text, b"1", KEY, b"86400000"), (b"WAIT", b"2", b"16")]
WROTE = b":1\r\n"


def replicated(wait: bytes, grant: bytes = b"+OK\r\n", wrote: bytes = WROTE) -> Callable[[Words], bytes]:
    """A master with these replies to WAIT, to an acquire and to a write."""
    replies = {b"WAIT": wait, b"SET": grant, b"EVAL": wrote, b"DELIFEQ": b":1\r\n"}
    return lambda words: replies[words[0]]


def waits(f: Fleet) -> int:
    return f.session(0).commands.count(WAITING[1])


def held(f: Fleet) -> Future[Votes]:
    """An acquire by another thread that was granted, and whose WAIT has no reply."""
    future = start(lambda: f.ask(acquire(b"k", f.all), 1))
    session = f.session(0)
    session.wait_commands(3)
    session.send(b"+OK\r\n" + WROTE)
    f.until(lambda: f.connection_state(0).pending == 1, "only WAIT is pending")
    return future


@pytest.mark.parametrize(("count", "granted"), [(b":2", True), (b":3", True), (b":1", False), (b":0", False)])
def test_a_grant_counts_when_so_many_replicas_have_it(fleet: MakeFleet, count: bytes, granted: bool) -> None:
    """Catches: a grant that counts by the reply to SET, and one that counts by any reply to WAIT."""
    f = fleet(replicated(count + b"\r\n"), commands=REPLICAS)
    votes = f.ask(acquire(b"k", 1), 1)
    assert votes.granted == granted
    assert f.session(0).commands == [set_words(b"k"), *WAITING]
    if not granted:
        number = count[1:].decode()
        text = f"-NOREPLICAS {number} of 2 replicas acknowledged the grant in time\r\n"
        assert votes.details == {0: text.encode()}


def test_it_does_not_count_before(fleet: MakeFleet) -> None:
    """Catches: a grant that is counted while WAIT is pending."""
    f = fleet(silent, commands=REPLICAS)
    future = held(f)
    assert not future.done()
    f.session(0).send(b":2\r\n")
    assert future.result(SOON).granted == 1


def test_the_vote_is_its_number(fleet: MakeFleet) -> None:
    """Catches: a vote of 1, or the number of replicas, in place of a fencing token."""
    loose = tuple(one._replace(reply=0) for one in REPLICAS)
    f = fleet(replicated(b":2\r\n", b":123456789\r\n"), commands=loose)
    assert f.ask(acquire(b"k", 1), 1).values == (123456789,)


@pytest.mark.parametrize("reply", [b"$-1\r\n", b"-OOM no\r\n"])
def test_refusals_and_faults_count_at_once(fleet: MakeFleet, reply: bytes) -> None:
    """Catches: a refused caller that waits for replicas."""
    f = fleet(replicated(b"", reply), commands=REPLICAS)
    assert f.ask(acquire(b"k", 1), 1).granted == 0


def test_one_wait_for_all_requests_of_a_flush(fleet: MakeFleet) -> None:
    """Catches: a WAIT for each request, which would serialize them by round trips to a replica."""
    f = fleet(replicated(b":2\r\n"), commands=REPLICAS)
    names = keys(100)
    assert f.tally(acquires(names, 1), 1).granted == [1] * 100
    assert f.session(0).commands == [*map(set_words, names), *WAITING]


def test_one_is_pending_at_most(fleet: MakeFleet) -> None:
    """The requests of all flushes meanwhile share the next.

    Catches: a WAIT for each flush: with a replica that is down, releases would queue behind all of them.
    """
    f = fleet(silent, commands=REPLICAS)
    first = held(f)
    others = []
    for number in range(3):
        others.append(start(lambda key=b"%d" % number: f.ask(acquire(key, 1), 1)))
        f.session(0).wait_commands(4 + number)
    assert waits(f) == 1
    f.session(0).send(b":2\r\n")
    assert first.result(SOON).granted == 1
    assert f.session(0).wait_commands(8)[6:] == WAITING
    f.session(0).send(b"+OK\r\n" * 3 + WROTE + b":2\r\n")
    assert [one.result(SOON).granted for one in others] == [1, 1, 1]
    assert waits(f) == 2


def test_a_release_waits_for_no_replica(fleet: MakeFleet) -> None:
    """Catches: a WAIT that follows a release."""
    f = fleet(replicated(b""), commands=REPLICAS)
    assert f.ask(release(b"k", 1), 1).granted == 1
    f.ask(acquire(b"not awaited", 1), 0)
    assert f.ask(release(b"k", 1), 1).granted == 1
    assert waits(f) == 0


@pytest.mark.parametrize(
    "reply", [b"-NOPERM no WAIT\r\n", b"-ERR WAIT cannot be used with replica instances\r\n"]
)
def test_an_error_of_wait_is_a_fault(fleet: MakeFleet, reply: bytes) -> None:
    """Catches: a grant that counts, or never ends, where WAIT is refused."""
    f = fleet(replicated(reply), commands=REPLICAS)
    assert f.ask(acquire(b"k", 1), 1).details == {0: reply}


@pytest.mark.parametrize("reply", [b"-OOM no memory\r\n", b":0\r\n"])
def test_without_its_write_wait_proves_nothing(fleet: MakeFleet, reply: bytes) -> None:
    """WAIT would wait for what this connection wrote before.

    Catches: a grant without a write that counts by replicas that need not have it.
    """
    f = fleet(replicated(b":2\r\n", wrote=reply), commands=REPLICAS)
    assert f.ask(acquire(b"k", 1), 1).values == (FAULT,)
    f.masters[0].answer = replicated(b":2\r\n")
    assert f.ask(acquire(b"k", 1), 1).granted == 1


def test_a_fallback_has_a_wait_of_its_own(fleet: MakeFleet) -> None:
    """Catches: an EVAL after NOSCRIPT that is confirmed by the WAIT before it, or never."""
    commands = dialect(Capabilities(), acknowledgement=Acknowledgement(2, 16, KEY))

    def answer(words: Words) -> bytes:
        if words[0] == b"WAIT":
            return b":2\r\n"
        return b"-NOSCRIPT no\r\n" if words[0] == b"EVALSHA" else b":1\r\n"

    f = fleet(answer, commands=commands)
    extend = Request(Verb.EXTEND, (b"k", b"t" * 20, b"10000"), 1)
    assert f.ask(extend, 1).granted == 1
    assert [words[0] for words in f.session(0).commands] == [b"EVALSHA", b"EVAL", b"WAIT"] + [b"EVAL"] * 2 + [
        b"WAIT"
    ]


def test_when_its_time_ends_it_is_a_fault(fleet: MakeFleet) -> None:
    """Catches: a vote without a reason: the master looks as if it were silent."""
    f = fleet(replicated(b""), commands=REPLICAS)
    votes = f.ask(acquire(b"k", 1), 1, timeout=0.2)
    assert votes.details == {0: b"-NOREPLICAS replicas have not acknowledged the grant in time\r\n"}
    assert f.connection_state(0).late_replies == 0
    f.session(0).send(b":2\r\n")
    f.until(lambda: f.connection_state(0).late_replies == 1, "the vote came too late")
    assert f.connection_state(0).pending == 0


def test_a_lost_connection_is_a_fault(fleet: MakeFleet) -> None:
    """Catches: a caller that waits for ever for a grant that no reply can confirm."""
    f = fleet(silent, commands=REPLICAS)
    future = held(f)
    f.lose(0)
    assert future.result(SOON).values == (FAULT,)
    f.reattach(0)
    f.masters[0].answer = replicated(b":2\r\n")
    assert f.ask(acquire(b"k", 1), 1).granted == 1


def test_detach_and_close_undo_what_is_not_confirmed(fleet: MakeFleet) -> None:
    """Catches: an orphaned key: its SET was answered, so no pending reply stands for it."""
    f = fleet(silent, silent, commands=REPLICAS)
    f.exchange([acquire(b"k", 1)], 1, timeout=0.0)
    f.session(0).wait_commands(3)
    f.session(0).send(b"+OK\r\n" + WROTE)
    f.until(lambda: f.connection_state(0).pending == 1, "only WAIT is pending")
    under_way = start(lambda: f.ask(acquire(b"u", 2), 1))
    f.session(1).wait_commands(3)
    f.session(1).send(b"+OK\r\n" + WROTE)
    f.until(lambda: f.connection_state(1).pending == 1, "only WAIT is pending")
    f.engine.close()
    assert under_way.result(SOON).granted == 0
    assert f.session(1).ended.wait(DEADLINE)
    assert f.session(1).commands[3:] == [del_words(b"u")]


def test_an_event_loop(fleet: MakeFleet) -> None:
    """Catches: a WAIT that only a thread sends."""
    f = fleet(silent, commands=REPLICAS)
    loop = Loop(f)
    loop.submit([acquire(b"a", 1)], 1, context="first")
    f.engine.flush()
    f.session(0).wait_commands(3)
    loop.submit([acquire(b"b", 1)], 1, context="second")
    f.engine.flush()
    f.session(0).wait_commands(4)
    f.session(0).send(b"+OK\r\n" + WROTE + b":2\r\n" + b"+OK\r\n")
    assert loop.votes().granted == 1
    assert f.session(0).wait_commands(6)[4:] == WAITING
    assert not loop.completed
    f.session(0).send(WROTE + b":2\r\n")
    assert loop.votes().granted == 1


def test_a_master_that_waits_for_replicas_does_not_lag(fleet: MakeFleet) -> None:
    """Catches: a connection that is taken for a forgotten one, and replaced, because a replica is down."""
    f = fleet(silent, commands=REPLICAS, lag_after=0.001)
    future = held(f)
    until = time.monotonic() + 0.1
    f.until(lambda: time.monotonic() > until, "the time passes after which a master lags")
    assert f.connection_state(0).lag == 0.0
    f.session(0).send(b":2\r\n")
    assert future.result(SOON).granted == 1
    f.exchange([release(b"k", 1)], 1, timeout=0.0)
    f.until_lagging(0)
