"""What goes wrong: each schedule is an act that is played again and again while its run lasts.

An act hurts, waits, and heals what it hurt; what it really did is counted by ``stage.did_it`` and by
the networks. ``SCHEDULES`` has them all, with what may be expected of the clients meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from chaos import network
from chaos.network import REPLIES, REQUESTS, Trick
from chaos.refusals import REFUSALS, refuses
from chaos.stage import MASTERS, NEED, Stage, Terms
from support.proxy import jitter
from support.waiting import eventually

Act = Callable[[Stage], None]

#: With masters that write everything to their disks, and keep these.
DISKS = {"restart_guard": "durable"}


@dataclass(frozen=True, slots=True)
class Schedule:
    """``act``, and what holds while it is played.

    ``injects``: what must have been done at least once each. ``remembers``: the masters keep what they
    acknowledged, so a holder has a majority all the time. ``live``: a majority is up all the time, so
    grants go on. ``in_touch``: no connection breaks, so no key is left to expire. ``exposed``: the
    faults are beyond what Redlock promises, overlaps are counted and no more.
    """

    act: Act
    terms: Terms
    injects: tuple[str, ...]
    server: str | None = None
    remembers: bool = True
    live: bool = True
    in_touch: bool = False
    exposed: bool = False

    def guarded(self, guard: str) -> Schedule:
        """The same for clients with this ``restart_guard``."""
        return replace(self, terms=replace(self.terms, options={"restart_guard": guard}))

    @property
    def name(self) -> str:
        return self.act.__name__


SCHEDULES: dict[str, Schedule] = {}
PLAIN = Terms()


def schedule(
    *injects: str,
    server: str | None = None,
    remembers: bool = True,
    live: bool = True,
    in_touch: bool = False,
    exposed: bool = False,
    terms: Terms = PLAIN,
) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        SCHEDULES[act.__name__] = Schedule(act, terms, injects, server, remembers, live, in_touch, exposed)
        return act

    return add


# --- masters that end, or stop -------------------------------------------------------------------


@schedule("kill -9", terms=Terms(aof=True, fenced=True, options=DISKS))
def kill_with_aof(stage: Stage) -> None:
    """A minority is killed and comes back with all that it had acknowledged."""
    down = stage.minority()
    for n in down:
        stage.kill(n)
    stage.pause(0.0, 0.2)
    for n in down:
        stage.boot(n)
    stage.pause(0.1, 0.3)


@schedule("shutdown", terms=Terms(aof=True, options=DISKS))
def rolling_restart(stage: Stage) -> None:
    for n in stage.any_order():
        stage.shut_down(n)
        stage.boot(n)
        stage.pause(0.2, 0.3)


@schedule("SIGSTOP", in_touch=True)
def stopped_masters(stage: Stage) -> None:
    down = stage.minority()
    for n in down:
        stage.masters[n].pause()
        stage.did_it("SIGSTOP")
    stage.pause(0.05, 0.8)
    for n in down:
        stage.masters[n].resume()
    stage.pause(0.05, 0.2)


FORGETFUL = Terms(hold=(0.2, 0.8), extends=0.0, options={"restart_guard": "marker"})


@schedule("kill -9", remembers=False, live=False, terms=FORGETFUL)
def amnesia(stage: Stage) -> None:
    """A majority restarts without its memory, one after the other; then there is peace for a while."""
    for n in stage.any_order()[:NEED]:
        stage.kill(n)
        stage.boot(n)
        stage.pause(0.0, 0.05)
    stage.pause(1.5 * stage.terms.ttl, 2.0 * stage.terms.ttl)


@schedule("FLUSHALL", remembers=False, live=False, terms=FORGETFUL)
def flushall(stage: Stage) -> None:
    for n in stage.any_order()[:NEED]:
        stage.nodes[n].flushall()
        stage.did_it("FLUSHALL")
        stage.pause(0.0, 0.05)
    stage.pause(1.5 * stage.terms.ttl, 2.0 * stage.terms.ttl)


# --- holders that stop, clocks that jump ---------------------------------------------------------


SLEEPY = Terms(ttl=0.4, hold=(0.02, 0.2), fenced=True)


@schedule("slept beyond the lease", "stale write refused", live=False, terms=SLEEPY)
def stopped_holders(stage: Stage) -> None:
    """A process stops while it holds the lock, for longer than its lease."""
    worker = stage.holder()
    if worker is None:
        return stage.pause(0.0, 0.01)
    worker.stop()
    stage.pause(1.1 * stage.terms.ttl, 2.0 * stage.terms.ttl)
    worker.resume()
    stage.did_it("SIGSTOP")
    stage.pause(0.05, 0.2)


@schedule("jump", "jump seen", in_touch=True, terms=Terms(clocks=True))
def client_clocks(stage: Stage) -> None:
    """The workers' wall clock is set, by up to an hour, forward and back."""
    stage.wall_clock.move(stage.chance.uniform(-3600.0, 3600.0))
    stage.did_it("jump")
    stage.pause(0.02, 0.1)


@schedule("jump", remembers=False, terms=Terms(clocks=True))
def server_clocks_back(stage: Stage) -> None:
    """The masters' clocks are set back: keys last longer, which is safe."""
    n = stage.chance.randrange(MASTERS)
    _jump(stage, n, stage.chance.uniform(-0.2, -0.02))
    stage.pause(0.02, 0.1)


@schedule("jump", remembers=False, exposed=True, terms=Terms(clocks=True))
def server_clocks_forward(stage: Stage) -> None:
    """A master's clock jumps by a lease: its keys are gone, as if it had forgotten them."""
    _jump(stage, stage.chance.randrange(MASTERS), 2 * stage.terms.ttl)
    stage.pause(0.02, 0.1)


def _jump(stage: Stage, n: int, seconds: float) -> None:
    def ahead() -> float:
        """Of our own clock: what the master believes the time to be."""
        whole, micros = stage.nodes[n].time()
        return float(whole) + micros / 1e6 - time.time()

    clock = stage.clocks[n]
    clock.move(seconds)
    close = abs(seconds) / 2
    eventually(lambda: abs(ahead() - clock.moved) < close, f"master {n} jumps by {seconds:.3f} s")
    stage.did_it("jump")


# --- networks ------------------------------------------------------------------------------------


@schedule("kept back", terms=Terms(fenced=True))
def partitions(stage: Stage) -> None:
    """A minority cannot be heard, or cannot hear, or both; what was on its way arrives late, or never."""
    _cut_off(stage, stage.minority())


@schedule("kept back", live=False)
def outage(stage: Stage) -> None:
    """As partitions, of a majority."""
    _cut_off(stage, stage.any_order()[: stage.chance.randint(NEED, MASTERS)])


def _cut_off(stage: Stage, masters: list[int]) -> None:
    ways = [frozenset({REQUESTS}), frozenset({REPLIES}), frozenset({REQUESTS, REPLIES})]
    for n in masters:
        stage.networks[n].blocked = stage.chance.choice(ways)
    stage.pause(0.05, 0.7)
    for n in masters:
        if stage.chance.random() < 0.5:
            stage.networks[n].cut()
        stage.networks[n].heal()
    stage.pause(0.05, 0.3)


@schedule("jitter", in_touch=True)
def slow_network(stage: Stage) -> None:
    """Every piece, both ways, is late; the masters are not equally far away."""
    for n in range(MASTERS):
        stage.networks[n].delay = jitter(stage.chance.randrange(1 << 30), stage.chance.uniform(0.001, 0.06))
        stage.did_it("jitter")
    stage.pause(0.2, 0.4)


def _trick(direction: bool, trick: Trick) -> Act:
    def act(stage: Stage) -> None:
        for n in stage.minority():
            for _ in range(stage.chance.randint(1, 3)):
                stage.networks[n].play(direction, trick)
        stage.pause(0.02, 0.15)

    act.__name__ = trick.__name__
    return act


schedule("lose_reply")(_trick(REPLIES, network.lose_reply))
schedule("cut_reply")(_trick(REPLIES, network.cut_reply))
schedule("garble")(_trick(REPLIES, network.garble))


@schedule("delay_set", "late SET", "late SET applied")
def delay_set(stage: Stage) -> None:
    """Each leaves a key that nobody owns, for a ttl; on the same two masters, else a majority has one."""
    for n in stage.weak:
        stage.networks[n].play(REQUESTS, network.delay_set)
    stage.pause(0.02, 0.15)


HELD_FOR_LONG = Terms(hold=(0.5, 1.6), extends=1.0, options={"socket_timeout": 0.15})


@schedule("stall", terms=HELD_FOR_LONG)
def stalled_connections(stage: Stage) -> None:
    """Clients give up connections that stall, and hold leases; the old ones deliver after the new ones."""
    for n in stage.minority():
        stage.networks[n].play(REQUESTS, network.stall)
    stage.pause(0.3, 1.0)


@schedule("dribble", in_touch=True)
def dribble(stage: Stage) -> None:
    """Requests and replies arrive byte by byte."""
    for n in stage.minority():
        for _ in range(10):
            stage.networks[n].play(stage.chance.choice((REQUESTS, REPLIES)), network.dribble)
    stage.pause(0.02, 0.1)


# --- masters that refuse -------------------------------------------------------------------------


@schedule(*(refusal.__name__ for refusal in REFUSALS))
def refusals(stage: Stage) -> None:
    """Each refusal in turn, on one master or two; that it is one is asked of the master itself."""
    for refusal in stage.chance.sample(REFUSALS, len(REFUSALS)):
        with contextlib.ExitStack() as stack:
            for n in stage.minority():
                text = stack.enter_context(refusal(stage, n))
                if text:
                    eventually(functools.partial(refuses, stage.nodes[n], text), f"it says {text}")
                stage.did_it(refusal.__name__)
            stage.pause(0.1, 0.2)
        stage.pause(0.0, 0.1)
