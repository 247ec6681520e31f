"""The environment of a schedule: masters behind bad networks, recorders, workers."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import redis
from chaos import clocks, truth
from chaos.counters import counter
from chaos.history import clock
from chaos.network import Network
from chaos.recorder import OPTIONS, Recorder
from chaos.worker import KEY
from chaos.worker_process import Worker
from support.waiting import eventually

from redlock_fast.embedded import Masters

MODES = ("threads", "asyncio")
#: Processes of a schedule that wants many.
CROWD = 64
AOF = ("--appendonly", "yes", "--appendfsync", "always")


@dataclass(frozen=True, slots=True)
class Topology:
    """The workers: (engine, "threads" or "asyncio") of each, the number of holders in each; the masters.

    ``crowd``: the number of workers where a schedule wants many, each with one holder. ``replicas``: how many
    must have a grant, where one primary has two.
    """

    workers: tuple[tuple[str, str], ...]
    server: str = "valkey"
    holders: int = 2
    seconds: float = 2.0
    seed: int = 0
    masters: int = 5
    crowd: int = CROWD
    replicas: int = 1

    @property
    def need(self) -> int:
        """How many masters are a quorum."""
        return self.masters // 2 + 1


def workers(engines: Sequence[str], modes: Sequence[str] = MODES) -> tuple[tuple[str, str], ...]:
    """One for each engine and way to wait; two at least, so that processes contend."""
    each = tuple((engine, mode) for engine in engines for mode in modes)
    return each * (1 if len(each) > 1 else 2)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a schedule asks of its stage. Times in seconds.

    ``clocks``: whose clocks it sets, "clients" or "masters". ``crowd``: many processes wait for the lock, and
    every other one for the fair lock of that name, which excludes the plain one. ``patience``: how long one
    acquire tries.
    """

    aof: bool = False
    clocks: str = ""
    ttl: float = 1.0
    hold: tuple[float, float] = (0.0, 0.03)
    extends: float = 0.2
    patience: float = 2.0
    fenced: bool = False
    crowd: bool = False
    options: dict[str, Any] = field(default_factory=dict)


class Environment:
    """``chance`` is the schedule's randomness, ``weak`` a largest minority, ``did`` counts what was done."""

    def __init__(self, settings: Settings, topology: Topology, folder: Path) -> None:
        self.settings, self.topology = settings, topology
        self.chance = random.Random(topology.seed)
        self.weak = self.chance.sample(range(topology.masters), topology.masters - topology.need)
        self.did: Counter[str] = Counter()
        self.opened = self.healed = self.ended = 0.0
        self._folder = folder
        self._counter_path = str(folder / "counter")
        self._counter = counter(self._counter_path, settings.fenced)
        self._counter.create()
        #: Of all workers, also of those that were killed.
        self.histories: list[Path] = []
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with self._exit as stack:
            self._set_up(stack)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def _set_up(self, stack: contextlib.ExitStack) -> None:
        settings, topology = self.settings, self.topology
        server, environment = topology.server, dict[str, str]()
        if settings.clocks:
            shim = clocks.build(self._folder)
        if settings.clocks == "masters":
            server = clocks.wrapped_server(server, shim, self._folder)
        elif settings.clocks == "clients":
            self.wall_clock = clocks.WallClock(shim, self._folder / "clock")
            environment = self.wall_clock.environment
        options = (*OPTIONS, *(AOF if settings.aof else ()))
        self.masters = stack.enter_context(
            Masters(topology.masters, server=server, options=options, password="")
        )
        if settings.clocks == "masters":
            self.clocks = [clocks.WallClock(shim, self.home(n) / "clock") for n in range(topology.masters)]
        self.recorders = [Recorder(master, KEY.encode()) for master in self.masters]
        self.networks: list[Network] = []
        self.nodes: list[redis.Redis] = []
        for n, recorder in enumerate(self.recorders):
            stack.callback(recorder.close)
            recorder.attach()
            network = Network(self.masters[n].port, topology.seed + n)
            self.networks.append(stack.enter_context(network))
            self.nodes.append(self._node(n))
        stack.callback(self._hang_up)
        self._environment = environment
        count = topology.crowd if settings.crowd else len(topology.workers)
        self.workers = [self._hire(number, stack) for number in range(count)]
        for worker in self.workers:
            assert worker.hear() == "ready", f"{worker.name} does not come to work"

    def _hire(self, place: int, stack: contextlib.ExitStack) -> Worker:
        settings, topology = self.settings, self.topology
        engine, mode = topology.workers[place % len(topology.workers)]
        name = f"{engine} {mode} {len(self.histories)}"
        setting = {
            "urls": [network.url for network in self.networks],
            "engine": engine,
            "mode": mode,
            "holders": 1 if settings.crowd else topology.holders,
            "ttl": settings.ttl,
            "hold": settings.hold,
            "extends": settings.extends,
            "patience": settings.patience,
            "options": settings.options,
            "seed": topology.seed,
            "fenced": settings.fenced,
            "fair": settings.crowd and place % 2 == 1,
            "counter": self._counter_path,
            "journal": str(self._folder / f"{name}.journal"),
        }
        worker = Worker(name, setting, self._environment)
        self.histories.append(worker.history)
        stack.callback(worker.kill)
        return worker

    def _hang_up(self) -> None:
        for node in self.nodes:
            node.close()

    def _node(self, n: int) -> redis.Redis:
        """A connection of our own, past the network, that stays."""
        node = redis.Redis(unix_socket_path=self.masters[n].socket_path, socket_timeout=20, protocol=2)
        node.ping()
        return node

    # --- the course of a run ---

    def open(self) -> None:
        self.opened = clock()
        for worker in self.workers:
            worker.tell("go")

    def on(self, overtime: float = 0.0) -> bool:
        """Whether the schedule goes on."""
        return clock() < self.opened + self.topology.seconds + overtime

    def heal(self) -> dict[str, bool]:
        """End all faults. Returns which workers reported that all their masters are connected."""
        for n, network in enumerate(self.networks):
            network.heal()
            network.delay, network.deaf = float, False
            self.masters[n].resume()
            if self.masters[n].pid is None:
                self.boot(n)
            network.refusing = False
        self.healed = clock()
        for worker in self.workers:
            worker.resume()
            worker.tell("heal")
        return {worker.name: worker.hear() == "strong" for worker in self.workers}

    def all_grant(self) -> bool:
        """Whether every master set the key since then."""
        return all(recorder.granted_since(self.healed) for recorder in self.recorders)

    def close(self) -> dict[str, bool]:
        """The workers come to their end. Which of them did so as they should?"""
        self.ended = clock()
        for worker in self.workers:
            worker.tell("stop")
        well = {worker.name: worker.finish() for worker in self.workers}
        for network in self.networks:
            network.lose_late_sets()
        return well

    def counted(self) -> int:
        """What the workers' counter says."""
        return self._counter.read()

    def left(self) -> list[int]:
        """The masters that have the key, or a queue of those that waited for it."""
        keys = KEY, f"{{{KEY}}}:q", f"{{{KEY}}}:e"
        return [n for n, node in enumerate(self.nodes) if node.exists(*keys)]

    def connections(self) -> int:
        """How many connections the masters have that are not ours."""
        return sum(len(node.client_list()) - 2 for node in self.nodes)

    def truth(self) -> list[truth.Truth]:
        """What each master did, as far as it was recorded."""
        true = [not (self.settings.clocks == "masters" and self.clocks[n].moved) for n in self._numbers]
        return [
            truth.read(recorder.chapters, KEY.encode(), true_clock)
            for recorder, true_clock in zip(self.recorders, true, strict=True)
        ]

    # --- what schedules do ---

    def did_it(self, what: str, times: int = 1) -> None:
        self.did[what] += times

    def pause(self, low: float, high: float) -> None:
        time.sleep(self.chance.uniform(low, high))

    def minority(self) -> list[int]:
        """One master or more, and a majority is left."""
        return self.chance.sample(self._numbers, self.chance.randint(1, len(self.weak)))

    @property
    def _numbers(self) -> range:
        return range(self.topology.masters)

    def any_order(self) -> list[int]:
        return self.chance.sample(self._numbers, len(self._numbers))

    def home(self, n: int) -> Path:
        return Path(self.masters[n].socket_path).parent

    def kill(self, n: int) -> None:
        """kill -9. Connections are refused until ``boot``."""
        self.networks[n].refusing = True
        self.masters[n].kill()
        self.did_it("kill -9")

    def shut_down(self, n: int) -> None:
        """SIGTERM: the server ends as servers do."""
        self.networks[n].refusing = True
        pid = self.masters[n].pid
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: self.masters[n].pid is None, "the server ends")
        self.did_it("shutdown")

    def boot(self, n: int) -> None:
        """Start it again, with what it kept; the recorder connects before any client."""
        master = self.masters[n]
        self.nodes[n].close()
        master.launch(master.port)
        master.wait_ready(attempts=1)
        self.recorders[n].attach()
        self.nodes[n] = self._node(n)
        self.networks[n].refusing = False

    @contextlib.contextmanager
    def setting(self, n: int, option: str, bad: Any, good: Any) -> Iterator[None]:
        """A master's option is wrong for a while."""
        self.nodes[n].config_set(option, bad)
        try:
            yield
        finally:
            self.nodes[n].config_set(option, good)

    def replace(self, place: int) -> None:
        """kill -9 of a worker; another process takes its place."""
        self.workers[place].kill()
        self.did_it("client killed")
        worker = self.workers[place] = self._hire(place, self._exit)
        assert worker.hear() == "ready", f"{worker.name} does not come to work"
        worker.tell("go")

    def holder(self) -> Worker | None:
        """A worker that holds the lock, if it was not too fast for us."""
        return next((worker for worker in self.workers if worker.last() == "grant"), None)
