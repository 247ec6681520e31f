"""The demo: processes contend for one lock, a master is killed, and the promises are checked."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from ... import embedded
from ...algorithm.quorum import quorum
from ...engine import load
from ...masters.membership import KEY
from ..bench import Bench
from ..progress_bar import ProgressBar
from ..settings import Settings
from .worker_pool import WorkerPool

BASELINE_SECONDS = 0.7
KEYS_TIMEOUT = 5.0
#: Options that are a part of the result, and what each worker counts.
OPTIONS = ("masters", "workers", "seconds", "engine", "server")
TALLY = ("cycles", "contended", "unavailable", "lost")


def run(options: argparse.Namespace) -> int:
    """Run the demo and print its result; returns 0, or 1 if a check failed."""
    engine = load(options.engine)
    with (
        embedded.Masters(options.masters, server=options.server) as masters,
        tempfile.TemporaryDirectory(prefix="redlock-fast-demo-") as folder,
    ):
        result = {name: getattr(options, name) for name in OPTIONS} | {"server": masters.binary}
        result["engine"] = "native" if engine.__name__ == "NativeEngine" else "python"
        result |= _baseline(masters, options)
        result |= _together(masters, options, Path(folder) / "counter")
        result["keys_left"] = _keys_left(masters)
    result["failures"] = failures(result)
    result["passed"] = not result["failures"]
    print(json.dumps(result) if options.json else table(result))
    return 0 if result["passed"] else 1


def _baseline(masters: embedded.Masters, options: argparse.Namespace) -> dict[str, Any]:
    """The times of locks without contention."""
    bench = Bench(Settings(masters.urls, {"engine": options.engine}), BASELINE_SECONDS, parts=1)
    result = bench.threads(1)
    bench.end()
    return {name: result[name] for name in ("acquire_us", "cycle_us")}


def _together(masters: embedded.Masters, options: argparse.Namespace, counter: Path) -> dict[str, Any]:
    """Run all workers on one key; half-way kill a master, if the others are still a quorum."""
    counter.write_text("0")
    expendable = options.masters - 1 >= quorum(options.masters)
    cycles_before_kill = None
    bar = ProgressBar(options.seconds)
    with WorkerPool(
        options.workers,
        urls=masters.urls,
        engine=options.engine,
        seconds=options.seconds,
        counter=str(counter),
    ) as pool:
        start = pool.go()
        while pool.working:
            pool.listen()
            elapsed = time.monotonic() - start
            if expendable and cycles_before_kill is None and elapsed >= options.seconds / 2:
                masters[-1].kill()
                cycles_before_kill = _read(counter)  # before the workers report
            bar.show(elapsed, f"{pool.cycles:,} locks, {_alive(masters)} of {len(masters)} masters")
    bar.end()
    tally = {name: sum(result[name] for result in pool.results) for name in TALLY}
    return tally | {
        "paths": sorted({path for result in pool.results for path in result["paths"]}),
        "alive": _alive(masters),
        "cycles_after_kill": None if cycles_before_kill is None else tally["cycles"] - cycles_before_kill,
        "locks_per_second": round(tally["cycles"] / options.seconds, 1),
        "counter": _read(counter),
    }


def _read(counter: Path) -> int:
    """The number in the file. A worker may be writing it: then two readings differ."""
    while (text := counter.read_text()) != counter.read_text():
        pass
    return int(text)


def _alive(masters: embedded.Masters) -> int:
    return sum(master.pid is not None for master in masters)


#: Counts the keys of a master, without its record and the marks of clients, which are no locks.
COUNT = (
    "local n=0 for _,key in ipairs(redis.call('keys','*')) do "
    f"if key:find('{KEY.decode()}',1,true)~=1 then n=n+1 end end return n"
)


def _keys_left(masters: embedded.Masters) -> int:
    """The number of keys on the masters that run, after the last releases have arrived."""
    deadline = time.monotonic() + KEYS_TIMEOUT
    while True:
        left = sum(int(master.ask(f'EVAL "{COUNT}" 0').lstrip(":")) for master in masters if master.pid)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def failures(result: dict[str, Any]) -> list[str]:
    """The promises that were broken."""
    found = []
    if result["counter"] != result["cycles"]:
        found.append(f"the counter is {result['counter']:,} after {result['cycles']:,} lock cycles")
    if result["keys_left"]:
        found.append(f"{result['keys_left']} keys left on the masters")
    if result["lost"]:
        found.append(f"{result['lost']} locks lost while they were held")
    if not result["cycles"]:
        found.append("no lock was acquired")
    elif result["cycles_after_kill"] == 0:
        found.append("no lock was acquired after a master was killed")
    return found


def table(result: dict[str, Any]) -> str:
    """The result as text."""
    killed = result["masters"] - result["alive"]
    fate = f"{result['alive']} of {result['masters']} alive" + (", one killed half-way" if killed else "")
    right = "right" if result["counter"] == result["cycles"] else "WRONG"
    rows = {
        "engine": result["engine"],
        "release path": ", ".join(result["paths"]),
        "masters": fate,
        "workers": f"{result['workers']} processes on one key for {result['seconds']:g} s",
        "lock cycles": f"{result['cycles']:,}",
        "locks/s": f"{result['locks_per_second']:,.0f}",
        "acquire": _times(result["acquire_us"]),
        "acquire + release": _times(result["cycle_us"]),
        "not acquired": f"{result['contended']} contended, {result['unavailable']} without quorum",
        "lost": f"{result['lost']}",
        "counter": f"{result['counter']:,} of {result['cycles']:,}: {right}",
        "keys left": f"{result['keys_left']}",
    }
    lines = [f"{name:<18} {value}" for name, value in rows.items()]
    if result["passed"]:
        lines += ["", f"demo passed: {result['cycles']:,} locks, no update lost, no key left"]
    else:
        lines += ["", *(f"demo failed: {what}" for what in result["failures"])]
    return "\n".join(lines)


def _times(times: dict[str, float]) -> str:
    return f"p50 {times['p50']:.0f} µs, p99 {times['p99']:.0f} µs (alone)"
