"""One run: a schedule on its stage, from the first grant to the verdict."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from chaos import history, verdict
from chaos.environment import Environment, Topology
from chaos.history import History, Hold
from chaos.schedules import Schedule
from chaos.truth import Truth
from chaos.verdict import Limits, Verdict
from support.waiting import DEADLINE, eventually

#: How much longer (seconds) a schedule may take to do all that it is there for.
OVERTIME = 20.0


def run_schedule(schedule: Schedule, topology: Topology, folder: Path, limits: Limits) -> Verdict:
    """The verdict on ``schedule``; ``folder`` is for this run alone."""
    with Environment(
        schedule.settings, replace(topology, server=schedule.server or topology.server), folder
    ) as environment:
        environment.open()
        while environment.on() or (environment.on(OVERTIME) and missing(schedule, evidence(environment))):
            schedule.act(environment)
        result = Verdict(schedule.name)
        for name, strong in environment.heal().items():
            result.expect(strong, f"{name} did not find its masters again")
        with contextlib.suppress(AssertionError):  # the verdict reports it
            eventually(environment.all_grant, "all masters grant again")
        for name, well in environment.close().items():
            result.expect(well, f"{name} did not come to a good end")
        _judge_rest(environment, limits, result)
        _judge(schedule, environment, evidence(environment), limits, result)
        return result


@dataclass(frozen=True, slots=True)
class Evidence:
    """What all workers wrote down, what all masters did, what was really injected."""

    histories: list[History]
    holds: list[Hold]
    truths: list[Truth]
    did: Counter[str]


def evidence(environment: Environment) -> Evidence:
    histories = [history.read(path) for path in environment.histories]
    holds = [hold for history in histories for hold in history.holds]
    truths = environment.truth()
    did = sum((network.played for network in environment.networks), Counter(environment.did))
    did["slept beyond the lease"] += sum(hold.overslept for hold in holds)
    did["stale write refused"] += sum(not hold.accepted for hold in holds)
    did["late SET applied"] += sum(truth.late_sets for truth in truths)
    did["jump seen"] += verdict.jumps_seen(histories)
    return Evidence(histories, holds, truths, +did)


def missing(schedule: Schedule, seen: Evidence) -> list[str]:
    """What the schedule is there for and has not done yet."""
    return [what for what in schedule.injects if not seen.did[what]]


def _judge(
    schedule: Schedule, environment: Environment, seen: Evidence, limits: Limits, result: Verdict
) -> None:
    result.did = seen.did
    result.holds = Counter(hold.worker for hold in seen.holds)
    result.refused = sum(history.unavailable + history.contended for history in seen.histories)
    for what in missing(schedule, seen):
        result.problems.append(f"nothing was injected: {what}")
    _judge_overlaps(schedule, environment, seen, result)
    if schedule.remembers:
        _judge_majorities(environment.topology.need, seen, result)
    _judge_keys(schedule, environment, seen, result)
    _judge_pace(schedule, environment, seen, limits, result)


def _judge_rest(environment: Environment, limits: Limits, result: Verdict) -> None:
    """What is left. A key that no client could release stays for its ttl, and no longer."""
    try:
        eventually(
            lambda: not environment.left(), "no key is left", deadline=environment.settings.ttl + DEADLINE
        )
        eventually(lambda: not environment.connections(), "no connection is left")
    except AssertionError as error:
        result.problems.append(f"{error}: {environment.left()}, {environment.connections()}")
    result.stalled = max(worker.result.get("stalled", 0.0) for worker in environment.workers)
    result.reconnects = sum(worker.result.get("reconnects", 0) for worker in environment.workers)
    result.grown = max(worker.result.get("grown", 0) for worker in environment.workers)
    for worker in environment.workers:
        for leak in verdict.leaks(worker.result, limits):
            result.problems.append(f"{worker.name} leaks {leak}")


def _judge_overlaps(schedule: Schedule, environment: Environment, seen: Evidence, result: Verdict) -> None:
    pairs = verdict.overlaps(seen.holds)
    result.overlaps = len(pairs)
    result.lost_updates = verdict.lost_updates(seen.holds, environment.counted())
    if schedule.exposed:
        return
    result.expect(result.lost_updates == 0, f"{result.lost_updates} updates lost")
    for first, second in pairs:
        result.problems.append(
            f"at {second.granted - environment.opened:.4f} s "
            f"{second.worker} was granted {second.token.hex()}, "
            f"{first.end - second.granted:.4f} s before the end of {first.token.hex()} that "
            f"{first.worker} had from {first.granted - environment.opened:.4f} s"
        )


def _judge_majorities(need: int, seen: Evidence, result: Verdict) -> None:
    for hold, late in verdict.overstated(seen.holds, seen.truths, need):
        result.problems.append(
            f"{hold.worker} stated a deadline of {hold.token.hex()} that is {late:.4f} s later than its "
            f"majority's keys: {verdict.where(hold, seen.truths)}"
        )
    for hold, moment in verdict.uncovered(seen.holds, seen.truths, need):
        result.problems.append(
            f"{hold.worker} held {hold.token.hex()} without a majority, {moment - hold.granted:.4f} s after "
            f"its grant, {hold.deadline - moment:.4f} s before its end: {verdict.where(hold, seen.truths)}"
        )
    for hold, master, moment, how in verdict.retracted(seen.holds, seen.truths):
        result.problems.append(
            f"{hold.worker} held {hold.token.hex()}, and its key on master {master} was {how} "
            f"{moment - hold.granted:.4f} s after the grant: {verdict.where(hold, seen.truths)}"
        )
    for first, second in verdict.disorders(seen.holds):
        result.problems.append(f"fencing tokens {first.fence}, then {second.fence}")


def _judge_keys(schedule: Schedule, environment: Environment, seen: Evidence, result: Verdict) -> None:
    result.foreign = sum(len(truth.foreign) for truth in seen.truths)
    if not environment.settings.clocks:  # a clock that jumps is not replayed
        result.expect(all(truth.steps for truth in seen.truths), "no command of some master was replayed")
    for master, why in verdict.not_allowed(seen.truths):
        result.problems.append(f"master {master} did what the model does not have: {why}")
    orphans = verdict.orphans(seen.holds, seen.truths)
    result.orphans = len(orphans)
    longest = max((span.ttl for truth in seen.truths for span in truth.spans), default=0.0)
    result.expect(longest <= environment.settings.ttl, f"a key was given {longest} s")
    result.expect(result.foreign == 0, f"{result.foreign} foreign deletes")
    # so busy is the machine
    kept_from_it = result.stalled >= environment.settings.ttl / 2 or result.reconnects
    if schedule.in_touch and not kept_from_it:
        owners = {hold.token: hold for hold in seen.holds}
        for span in orphans:
            began, owner = span.start - environment.opened, owners.get(span.token)
            until = f"{owner.released_at - environment.opened:.4f}" if owner else ""
            holder = f"of {owner.worker}, which released it at {until} s" if owner else "granted to no client"
            where = [n for n, truth in enumerate(seen.truths) if span in truth.spans]
            result.problems.append(
                f"{span.token.hex()}, {holder}, was set on {where} at {began:.4f} s and left to expire"
            )


def _judge_pace(
    schedule: Schedule, environment: Environment, seen: Evidence, limits: Limits, result: Verdict
) -> None:
    result.gap = verdict.longest_gap(seen.holds, environment.opened, environment.healed)
    result.strength = verdict.full_strength(seen.truths, environment.healed)
    result.expect(result.strength <= limits.strength, f"full strength after {result.strength:.2f} s")
    if schedule.live:
        overtime = max(history.overtime for history in seen.histories)
        result.expect(result.gap <= limits.gap, f"no grant for {result.gap:.2f} s")
        result.expect(overtime <= limits.overtime, f"an acquire took {overtime:.2f} s more than its timeout")
