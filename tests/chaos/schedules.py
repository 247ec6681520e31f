"""The faults: each schedule is an act that is repeated while its run lasts.

An act hurts, waits, and heals what it hurt; what it really did is counted by ``environment.did_it`` and by
the networks. ``SCHEDULES`` has them all, with what the clients must do during the fault.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from chaos import history, network
from chaos.environment import Environment, Settings
from chaos.history import clock
from chaos.network import REPLIES, REQUESTS, Trick
from chaos.refusals import REFUSALS, refuses
from support.proxy import jitter
from support.waiting import eventually

Act = Callable[[Environment], None]

#: With masters that write everything to their disks, and keep these.
DISKS = {"restart_guard": "durable"}


@dataclass(frozen=True, slots=True)
class Schedule:
    """``act``, and what holds while it is repeated.

    ``injects``: what must have been done at least once each. ``remembers``: the masters keep what they
    acknowledged, so a holder has a majority all the time. ``live``: a majority is up all the time, so
    grants go on. ``in_touch``: no connection breaks, so no key is left to expire. ``exposed``: the
    faults are beyond what Redlock promises, overlaps are counted and no more.
    """

    act: Act
    settings: Settings
    injects: tuple[str, ...]
    server: str | None = None
    remembers: bool = True
    live: bool = True
    in_touch: bool = False
    exposed: bool = False

    def guarded(self, guard: str) -> Schedule:
        """The same for clients with this ``restart_guard``."""
        return replace(self, settings=replace(self.settings, options={"restart_guard": guard}))

    @property
    def name(self) -> str:
        return self.act.__name__


SCHEDULES: dict[str, Schedule] = {}
PLAIN = Settings()


def schedule(
    *injects: str,
    server: str | None = None,
    remembers: bool = True,
    live: bool = True,
    in_touch: bool = False,
    exposed: bool = False,
    settings: Settings = PLAIN,
) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        SCHEDULES[act.__name__] = Schedule(act, settings, injects, server, remembers, live, in_touch, exposed)
        return act

    return add


# --- masters that end, or stop -------------------------------------------------------------------


@schedule("kill -9", settings=Settings(aof=True, fenced=True, options=DISKS))
def kill_with_aof(environment: Environment) -> None:
    """A minority is killed and comes back with all that it had acknowledged."""
    down = environment.minority()
    for n in down:
        environment.kill(n)
    environment.pause(0.0, 0.2)
    for n in down:
        environment.boot(n)
    environment.pause(0.1, 0.3)


@schedule("shutdown", settings=Settings(aof=True, options=DISKS))
def rolling_restart(environment: Environment) -> None:
    for n in environment.any_order():
        environment.shut_down(n)
        environment.boot(n)
        environment.pause(0.2, 0.3)


@schedule("SIGSTOP", in_touch=True)
def stopped_masters(environment: Environment) -> None:
    down = environment.minority()
    for n in down:
        environment.masters[n].pause()
        environment.did_it("SIGSTOP")
    environment.pause(0.05, 0.8)
    for n in down:
        environment.masters[n].resume()
    environment.pause(0.05, 0.2)


FORGETFUL = Settings(hold=(0.2, 0.8), extends=0.0, options={"restart_guard": "marker"})


@schedule("kill -9", remembers=False, live=False, settings=FORGETFUL)
def amnesia(environment: Environment) -> None:
    """A majority restarts without its memory, one after the other; then there is peace for a while."""
    for n in environment.any_order()[: environment.topology.need]:
        environment.kill(n)
        environment.boot(n)
        environment.pause(0.0, 0.05)
    environment.pause(1.5 * environment.settings.ttl, 2.0 * environment.settings.ttl)


@schedule("FLUSHALL", remembers=False, live=False, settings=FORGETFUL)
def flushall(environment: Environment) -> None:
    for n in environment.any_order()[: environment.topology.need]:
        environment.nodes[n].flushall()
        environment.did_it("FLUSHALL")
        environment.pause(0.0, 0.05)
    environment.pause(1.5 * environment.settings.ttl, 2.0 * environment.settings.ttl)


#: A client may write a record back for 4 * max_ttl; a busy machine restarts all masters in that time.
BESIDE_DEAD = Settings(hold=(0.2, 0.8), extends=0.0, options={"restart_guard": "auto", "max_ttl": 4.0})


@schedule("kill -9", "grant beside dead masters", remembers=False, live=False, settings=BESIDE_DEAD)
def blank_beside_dead(environment: Environment) -> None:
    """A largest minority is down, and others restart empty: no quorum has a record of its list any more.

    Nevertheless the lock is granted before the minority is back.
    """
    for n in environment.weak:
        environment.kill(n)
    alive = [n for n in environment.any_order() if n not in environment.weak]
    for n in alive[: environment.chance.randint(1, len(alive))]:
        environment.kill(n)
        environment.boot(n)
    since = clock()

    def granted() -> bool:
        histories = (history.read(worker.history) for worker in environment.workers)
        return any(hold.granted > since for one in histories for hold in one.holds)

    eventually(granted, "the lock is granted beside dead masters")
    environment.did_it("grant beside dead masters")
    for n in environment.weak:
        environment.boot(n)
    environment.pause(0.1, 0.3)


# --- many that wait ------------------------------------------------------------------------------

#: The masters and the networks are busy, so every time is longer than usual.
BUSY = {**DISKS, "node_timeout": 1.5, "connect_timeout": 5.0, "socket_timeout": 5.0}
CROWD = Settings(aof=True, ttl=3.0, hold=(0.0, 0.01), patience=15.0, crowd=True, options=BUSY)


@schedule("kill -9", "shutdown", "SIGSTOP", "client killed", "client stopped", settings=CROWD)
def crowd(environment: Environment) -> None:
    """Many processes wait for one lock. Masters and clients are killed, stopped, and started again.

    A grant must follow: the place of a dead client ends, and no wake-up is lost.
    """
    faults = kill_with_aof, rolling_restart, stopped_masters, killed_clients, stopped_clients
    for fault in environment.chance.sample(faults, len(faults)):
        fault(environment)


def killed_clients(environment: Environment) -> None:
    """The holder, if it is not too fast, and some that wait."""
    for place in _some_clients(environment):
        environment.replace(place)
    environment.pause(0.0, 0.3)


def stopped_clients(environment: Environment) -> None:
    """For longer than a lease, in some cases."""
    stopped = [environment.workers[place] for place in _some_clients(environment)]
    for worker in stopped:
        worker.stop()
        environment.did_it("client stopped")
    environment.pause(0.1, 1.5 * environment.settings.ttl)
    for worker in stopped:
        worker.resume()
    environment.pause(0.0, 0.3)


def _some_clients(environment: Environment) -> list[int]:
    places = range(len(environment.workers))
    holder = [place for place in places if environment.workers[place].last() == "grant"][:1]
    others = [place for place in places if place not in holder]
    return holder + environment.chance.sample(others, environment.chance.randint(1, 3))


# --- holders that stop, clocks that jump ---------------------------------------------------------


SLEEPY = Settings(ttl=0.4, hold=(0.02, 0.2), fenced=True)


@schedule("slept beyond the lease", "stale write refused", live=False, settings=SLEEPY)
def stopped_holders(environment: Environment) -> None:
    """A process stops while it holds the lock, for longer than its lease."""
    worker = environment.holder()
    if worker is None:
        return environment.pause(0.0, 0.01)
    worker.stop()
    environment.pause(1.1 * environment.settings.ttl, 2.0 * environment.settings.ttl)
    worker.resume()
    environment.did_it("SIGSTOP")
    environment.pause(0.05, 0.2)


@schedule("jump", "jump seen", in_touch=True, settings=Settings(clocks="clients"))
def client_clocks(environment: Environment) -> None:
    """The workers' wall clock is set, by up to an hour, forward and back."""
    environment.wall_clock.move(environment.chance.uniform(-3600.0, 3600.0))
    environment.did_it("jump")
    environment.pause(0.02, 0.1)


@schedule("jump", remembers=False, settings=Settings(clocks="masters"))
def server_clocks_back(environment: Environment) -> None:
    """The masters' clocks are set back: keys last longer, which is safe."""
    n = environment.chance.randrange(environment.topology.masters)
    _jump(environment, n, environment.chance.uniform(-0.2, -0.02))
    environment.pause(0.02, 0.1)


@schedule("jump", remembers=False, exposed=True, settings=Settings(clocks="masters"))
def server_clocks_forward(environment: Environment) -> None:
    """A master's clock jumps by a lease: its keys expire, as if it had forgotten them."""
    _jump(
        environment, environment.chance.randrange(environment.topology.masters), 2 * environment.settings.ttl
    )
    environment.pause(0.02, 0.1)


def _jump(environment: Environment, n: int, seconds: float) -> None:
    def ahead() -> float:
        """Of our own clock: what the master believes the time to be."""
        whole, micros = environment.nodes[n].time()
        return float(whole) + micros / 1e6 - time.time()

    clock = environment.clocks[n]
    clock.move(seconds)
    close = abs(seconds) / 2
    eventually(lambda: abs(ahead() - clock.moved) < close, f"master {n} jumps by {seconds:.3f} s")
    environment.did_it("jump")


# --- networks ------------------------------------------------------------------------------------


@schedule("kept back", settings=Settings(fenced=True))
def partitions(environment: Environment) -> None:
    """A minority cannot send, or cannot receive, or both; what was on its way arrives late, or never."""
    _cut_off(environment, environment.minority())


@schedule("kept back", live=False)
def outage(environment: Environment) -> None:
    """As partitions, of a majority."""
    _cut_off(
        environment,
        environment.any_order()[
            : environment.chance.randint(environment.topology.need, environment.topology.masters)
        ],
    )


def _cut_off(environment: Environment, masters: list[int]) -> None:
    ways = [frozenset({REQUESTS}), frozenset({REPLIES}), frozenset({REQUESTS, REPLIES})]
    for n in masters:
        environment.networks[n].blocked = environment.chance.choice(ways)
    environment.pause(0.05, 0.7)
    for n in masters:
        if environment.chance.random() < 0.5:
            environment.networks[n].cut()
        environment.networks[n].heal()
    environment.pause(0.05, 0.3)


@schedule("jitter", in_touch=True)
def slow_network(environment: Environment) -> None:
    """Every piece, both ways, is late; the masters are not equally far away."""
    for n in range(environment.topology.masters):
        environment.networks[n].delay = jitter(
            environment.chance.randrange(1 << 30), environment.chance.uniform(0.001, 0.06)
        )
        environment.did_it("jitter")
    environment.pause(0.2, 0.4)


def _trick(direction: bool, trick: Trick) -> Act:
    def act(environment: Environment) -> None:
        for n in environment.minority():
            for _ in range(environment.chance.randint(1, 3)):
                environment.networks[n].add_trick(direction, trick)
        environment.pause(0.02, 0.15)

    act.__name__ = trick.__name__
    return act


schedule("lose_reply")(_trick(REPLIES, network.lose_reply))
schedule("cut_reply")(_trick(REPLIES, network.cut_reply))
schedule("garble")(_trick(REPLIES, network.garble))


@schedule("delay_set", "late SET", "late SET applied")
def delay_set(environment: Environment) -> None:
    """Each leaves a key without an owner, for a ttl; on the same two masters, else a majority has one."""
    for n in environment.weak:
        environment.networks[n].add_trick(REQUESTS, network.delay_set)
    environment.pause(0.02, 0.15)


HELD_FOR_LONG = Settings(hold=(0.5, 1.6), extends=1.0, options={"socket_timeout": 0.15})


@schedule("stall", settings=HELD_FOR_LONG)
def stalled_connections(environment: Environment) -> None:
    """Clients give up connections that stall, and hold leases; the old ones deliver after the new ones."""
    for n in environment.minority():
        environment.networks[n].add_trick(REQUESTS, network.stall)
    environment.pause(0.3, 1.0)


@schedule("dribble", in_touch=True)
def dribble(environment: Environment) -> None:
    """Requests and replies arrive byte by byte."""
    for n in environment.minority():
        for _ in range(10):
            environment.networks[n].add_trick(environment.chance.choice((REQUESTS, REPLIES)), network.dribble)
    environment.pause(0.02, 0.1)


# --- masters that refuse -------------------------------------------------------------------------


@schedule(*(refusal.__name__ for refusal in REFUSALS))
def refusals(environment: Environment) -> None:
    """Each refusal in turn, on one master or two; that it is one is asked of the master itself."""
    for refusal in environment.chance.sample(REFUSALS, len(REFUSALS)):
        with contextlib.ExitStack() as stack:
            for n in environment.minority():
                text = stack.enter_context(refusal(environment, n))
                if text:
                    eventually(functools.partial(refuses, environment.nodes[n], text), f"it says {text}")
                environment.did_it(refusal.__name__)
            environment.pause(0.1, 0.2)
        environment.pause(0.0, 0.1)
