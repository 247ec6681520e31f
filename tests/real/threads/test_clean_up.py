"""Nothing of ours stays on a master: not where replies never came, not over its crash, not after exceptions.

REDLOCK_FAST_TRIALS: how many clients try each case of an orphan at the same time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import pytest
import redis
from support.clocks import Jumping
from support.inside import core_of
from support.interruptions import interrupted
from support.keys import TTL, calls, forget_calls, names, nothing_left, occupy, paused, with_keys
from support.makers import MakeClient, Raw
from support.proxy import Proxy
from support.waiting import DEADLINE, eventually, start

from redlock_fast import ClientClosed, FastRedlock, Lock, Retry
from redlock_fast.embedded import Master, Masters

TRIALS = int(os.environ.get("REDLOCK_FAST_TRIALS", "3"))
#: A master that is silent for so long is connected again. No other must be, though the machine is busy.
SOON, NEVER = 1.0, 100.0
AOF = ["--appendonly", "yes", "--appendfsync", "always"]

# --- replies that do not come -----------------------------------------------------------------------


class Silent:
    """The last master, behind a proxy: silent from ``begin`` to ``end``, for one of three reasons."""

    def __init__(self, why: str, master: Master, proxy: Proxy) -> None:
        self.why = why
        self.master = master
        self.proxy = proxy

    def begin(self) -> None:
        if self.why == "stopped master":
            self.master.pause()
        else:
            late = self.why == "late request"
            self.proxy.hold(requests=late, replies=not late)

    def end(self) -> None:
        self.master.resume()
        self.proxy.deliver()


@pytest.fixture(params=["stopped master", "late request", "late reply"])
def silent(request: pytest.FixtureRequest, masters: Masters) -> Iterator[Silent]:
    with Proxy(masters[-1].port) as proxy:
        yield Silent(request.param, masters[-1], proxy)


def acquired(
    masters: Masters, silent: Silent, connected: MakeClient, node: redis.Redis, socket_timeout: float
) -> tuple[list[FastRedlock], list[Lock]]:
    """Clients with a lock each, which wait for the reply of the silent master."""
    where = [*masters.urls[:-1], silent.proxy.url]
    clients = [connected(where, socket_timeout=socket_timeout) for _ in range(TRIALS)]
    forget_calls([node])
    silent.begin()
    locks = [c.lock(name, TTL) for c, name in zip(clients, names(TRIALS), strict=True)]
    assert all(lock.acquire() for lock in locks)
    return clients, locks


def no_orphans(node: redis.Redis) -> None:
    """It executed every acquire, and has no key, long before one expires."""
    eventually(lambda: calls([node], "set") == [TRIALS], "it hears of every acquire")
    eventually(lambda: node.dbsize() == 0, "it has no key")
    assert node.info("stats")["expired_keys"] == 0


def test_closed_while_a_reply_is_owed(
    masters: Masters, silent: Silent, connected: MakeClient, raw: Raw
) -> None:
    """A lock that is held stays on the master that owed its reply: another process may have its token.

    Catches: a release behind a SET that was granted, which takes back a vote that the other process counted.
    """
    nodes = raw(masters)
    clients, _ = acquired(masters, silent, connected, nodes[-1], NEVER)
    for closing in [start(c.close) for c in clients]:
        closing.result(DEADLINE)
    silent.end()
    eventually(lambda: nodes[-1].dbsize() == TRIALS, "it executes every acquire, and keeps it")
    assert sum(node.dbsize() for node in nodes[:-1]) >= 3 * TRIALS


def test_closed_while_much_is_owed(masters: Masters, connected: MakeClient) -> None:
    """More than a master reads at once. Catches: a socket that is closed before: the master's first reply
    resets the connection, and it drops the releases that it has not read yet.
    """
    c = connected(masters, socket_timeout=NEVER)
    with paused(masters, 4):
        assert all(c.release_many([lock for lock in c.acquire_many(names(500), TTL) if lock]))
        closing = start(lambda: core_of(c).masters.close(NEVER))
        eventually(lambda: not core_of(c).masters.connector.roster.connected(), "all replies are read")
    closing.result(DEADLINE)
    nothing_left(masters)


def test_given_up_while_a_reply_is_owed(
    masters: Masters, silent: Silent, connected: MakeClient, raw: Raw
) -> None:
    """A lock that is held stays on the master that was given up: it may have been counted since.

    Catches: a release of it behind the SET; and locks that stay when they are released in turn.
    """
    nodes = raw(masters)
    clients, locks = acquired(masters, silent, connected, nodes[-1], SOON)
    given_up = {"connecting", "down"}
    eventually(lambda: all(c.health()[-1].state in given_up for c in clients), "the connector gives it up")
    silent.end()
    eventually(lambda: all(c.health()[-1].state == "connected" for c in clients), "they connect again")
    eventually(lambda: nodes[-1].dbsize() == TRIALS, "it executes every acquire, and keeps it")
    for lock in locks:
        lock.check()
    assert all(lock.release() for lock in locks)
    nothing_left(masters)


def test_given_up_after_a_round_that_failed(
    masters: Masters, silent: Silent, connected: MakeClient, raw: Raw
) -> None:
    """Catches: the release of an attempt that got no lock on the next connection only, which the SET may come
    after.
    """
    nodes = raw(masters)
    where = [*masters.urls[:-1], silent.proxy.url]
    c = connected(where, socket_timeout=SOON)
    occupy(nodes[:-1], "failed")
    silent.begin()
    assert not c.lock("failed", TTL).acquire(blocking=False)
    eventually(lambda: c.health()[-1].state in {"connecting", "down"}, "the connector gives it up")
    silent.end()
    eventually(lambda: c.health()[-1].state == "connected", "it connects again")
    eventually(lambda: calls(nodes[-1:], "set") >= [1], "the master hears of the acquire")
    eventually(lambda: nodes[-1].dbsize() == 0, "and of its release")


def test_closed_while_another_thread_acquires(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """Three of five are stopped, so nothing is granted. Catches: the same where a caller still waits; and
    what the other two had granted by then.
    """
    nodes = raw(masters)
    clients = [connected(masters, socket_timeout=NEVER) for _ in range(TRIALS)]
    forget_calls(nodes)
    with paused(masters, 2, 3, 4):
        trying = [start(c.lock(name, TTL).acquire) for c, name in zip(clients, names(TRIALS), strict=True)]
        eventually(lambda: calls(nodes[:2], "set") == [TRIALS] * 2, "all have begun")
        for closing in [start(c.close) for c in clients]:
            closing.result(DEADLINE)
        for one in trying:
            with pytest.raises(ClientClosed):
                one.result(DEADLINE)
    for node in nodes:
        no_orphans(node)


# --- a master that was killed -----------------------------------------------------------------------


@pytest.fixture(scope="module", params=["valkey", "redis"])
def durable(request: pytest.FixtureRequest) -> Iterator[Masters]:
    """Three masters that forget nothing over a crash."""
    with Masters(3, server=request.param, options=AOF) as masters:
        yield masters


def test_release_is_replayed_to_a_master_that_was_killed(durable: Masters, connected: MakeClient) -> None:
    """Catches: a release that is dropped with its master, whose file brings the key back."""
    with Proxy(durable[-1].port) as proxy:
        c = connected([*durable.urls[:-1], proxy.url])
        lock = c.lock("replayed", TTL)
        assert lock.acquire()
        eventually(lambda: with_keys(durable) == [0, 1, 2], "all have the key")
        proxy.refusing = True
        durable[-1].kill()
        eventually(lambda: c.health()[-1].state == "down", "the loss is seen")
        assert lock.release()
        durable[-1].restart()
        eventually(lambda: with_keys(durable) == [2], "the others are clean; the file brought the key back")
        assert int(durable[-1].ask("PTTL replayed")[1:]) > DEADLINE * 1000, "it will not expire soon"
        proxy.refusing = False
        nothing_left(durable)
        eventually(lambda: [health.resent for health in c.health()] == [0, 0, 1], "it is counted")


# --- exceptions -------------------------------------------------------------------------------------


def a_third_later(c: FastRedlock, clock: Jumping, renewed: int) -> None:
    clock.jump(TTL * 0.35)
    eventually(lambda: c.stats().renewed >= renewed, "the other lock is extended")


def lose(c: FastRedlock, clock: Jumping, called: threading.Event) -> NoReturn:
    """A body that outlives its lease, and raises after its callback did."""
    for turn in (1, 2, 3):
        a_third_later(c, clock, turn)
    assert called.wait(DEADLINE)
    raise ZeroDivisionError


@pytest.mark.usefixtures("all_masters")
def test_exceptions_leave_nothing_behind(
    masters: Masters, connected: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """``on_lost`` raises, then the body does. Catches: a release that is skipped, a renewal that ends."""
    clock, called = Jumping(), threading.Event()

    def on_lost(lock: Lock, reason: str) -> None:
        called.set()
        raise RuntimeError("in the callback")

    c = connected(masters, ttl=TTL, clock=clock)
    stays = c.lock("stays", auto_extend=True)
    assert stays.acquire()
    with pytest.raises(ZeroDivisionError), c.lock("body"):
        raise ZeroDivisionError
    lost = c.lock("lost", auto_extend=True, on_lost=on_lost, max_extensions=0)
    with pytest.raises(ZeroDivisionError), lost:
        lose(c, clock, called)
    eventually(lambda: "in the callback" in caplog.text, "it is logged")
    eventually(lambda: all(m.ask("EXISTS body lost") == ":0" for m in masters), "neither has left its key")
    a_third_later(c, clock, 4)
    stays.check()
    assert stays.release()
    nothing_left(masters)


#: What asks for a lock, of which another client holds these keys.
SPLIT: dict[str, tuple[Callable[[FastRedlock], Any], tuple[str, ...]]] = {
    "plain": (lambda c: c.lock("r", TTL), ("r",)),
    "fair": (lambda c: c.lock("r", TTL, fair=True), ("r",)),
    "write": (lambda c: c.rwlock("r", TTL).write(), ("{r}:w",)),
    "semaphore": (lambda c: c.semaphore("r", 2, TTL), ("{r}:0", "{r}:1")),
    "multilock": (lambda c: c.multilock(["r", "s"], TTL), ("s",)),
}


def interrupted_everywhere(nodes: list[redis.Redis], make: Callable[[], Callable[[], object]]) -> None:
    """Interrupt what ``make`` returns at each moment. These masters keep nothing of it.

    Moments of the driver and of the engine do not count: they have tests of their own.
    """
    for number in range(1000):
        moment = interrupted(make(), number, inside=("algorithm", "locks"))
        if moment is None:
            break
        eventually(lambda: not any(node.keys("*") for node in nodes), f"nothing is left: {moment}")
    assert number > 20, "there were moments to interrupt it at"


# An entry of the local queue leaves when it is collected, and what is raised there is only printed.
@pytest.mark.filterwarnings("ignore:Exception ignored.*QueueEntry:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", SPLIT)
def test_interrupted_after_a_minority_granted(
    valkey: Masters, connected: MakeClient, raw: Raw, kind: str
) -> None:
    """Two rounds. Catches: an undo that is taken for done before its requests are sent."""
    make, taken = SPLIT[kind]
    c, nodes = connected(valkey, retry=Retry(0.0, 0.0, max_attempts=2)), raw(valkey)
    occupy(nodes[:3], *taken)
    interrupted_everywhere(nodes[3:], lambda: partial(make(c).acquire, timeout=DEADLINE))


def test_a_batch_interrupted_after_a_minority_granted(
    valkey: Masters, connected: MakeClient, raw: Raw
) -> None:
    """Catches: what was refused, and is undone where no exception is expected."""
    c, nodes = connected(valkey), raw(valkey)
    occupy(nodes[:3], "r", "s")
    interrupted_everywhere(nodes[3:], lambda: partial(c.acquire_many, ["r", "s"], TTL))
