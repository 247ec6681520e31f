"""One run: a schedule on its stage, from the first grant to the verdict."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

from chaos import journal, verdict
from chaos.journal import Hold
from chaos.schedules import Schedule
from chaos.stage import NEED, Cast, Stage
from chaos.truth import Truth
from chaos.verdict import Limits, Verdict
from support.waiting import DEADLINE, eventually


def play(schedule: Schedule, cast: Cast, folder: Path, limits: Limits) -> Verdict:
    """The verdict on ``schedule``; ``folder`` is for this run alone."""
    cast = replace(cast, server=schedule.server or cast.server)
    with Stage(schedule.terms, cast, folder) as stage:
        stage.open()
        while stage.on():
            schedule.act(stage)
        strong = stage.heal()
        with contextlib.suppress(AssertionError):  # the verdict tells
            eventually(stage.all_grant, "all masters grant again")
        ended = stage.close()
        return _judge(schedule, stage, limits, strong, ended)


def _judge(
    schedule: Schedule, stage: Stage, limits: Limits, strong: dict[str, bool], ended: dict[str, bool]
) -> Verdict:
    did = stage.did
    for network in stage.networks:
        did.update(network.played)
    result = Verdict(schedule.name, did)
    for name, good in ended.items():
        result.expect(good, f"{name} did not come to a good end")
    for name, good in strong.items():
        result.expect(good, f"{name} did not find its masters again")
    _judge_masters(stage, result)
    _judge_story(schedule, stage, limits, result)
    for worker in stage.workers:
        for leak in verdict.leaks(worker.result, limits) if worker.result else ():
            result.problems.append(f"{worker.name} leaks {leak}")
    for what in schedule.injects:
        result.expect(did[what] > 0, f"nothing was injected: {what}")
    return result


def _judge_masters(stage: Stage, result: Verdict) -> None:
    """What is left on them. A key that nobody could release stays for its ttl, and no longer."""
    try:
        eventually(lambda: not stage.left(), "no key is left", deadline=stage.terms.ttl + DEADLINE)
        eventually(lambda: not stage.connections(), "no connection is left")
    except AssertionError as error:
        result.problems.append(f"{error}: {stage.left()}, {stage.connections()}")


def _judge_story(schedule: Schedule, stage: Stage, limits: Limits, result: Verdict) -> None:
    stories = [journal.read(worker.journal) for worker in stage.workers]
    holds = [hold for story in stories for hold in story.holds]
    truths = stage.truth()
    result.holds = Counter(hold.worker for hold in holds)
    result.refused = sum(story.unavailable + story.contended for story in stories)
    result.overlaps = len(pairs := verdict.overlaps(holds))
    result.lost_updates = verdict.lost_updates(holds, stage.counted())
    result.orphans = len(verdict.orphans(holds, truths))
    result.foreign = sum(len(truth.foreign) for truth in truths)
    result.gap = verdict.longest_gap(holds, stage.opened, stage.healed)
    result.strength = verdict.full_strength(truths, stage.healed)
    result.did["slept beyond the lease"] += sum(hold.overslept for hold in holds)
    result.did["stale write refused"] += sum(not hold.accepted for hold in holds)
    result.did["late SET applied"] += sum(truth.late_sets for truth in truths)
    result.did["jump seen"] += verdict.jumps_seen(stories)
    result.did = +result.did
    if not schedule.exposed:
        _judge_overlaps(stage, result, pairs)
    if schedule.remembers:
        _judge_majorities(result, holds, truths)
    for first, second in verdict.disorders(holds):
        result.problems.append(f"fencing tokens {first.fence}, then {second.fence}")
    longest = max((span.ttl for truth in truths for span in truth.spans), default=0.0)
    result.expect(longest <= stage.terms.ttl + 0.001, f"a key was given {longest} s")
    result.expect(result.foreign == 0, f"{result.foreign} foreign deletes")
    result.expect(not (schedule.in_touch and result.orphans), f"{result.orphans} orphans")
    result.expect(result.strength <= limits.strength, f"full strength after {result.strength:.2f} s")
    if schedule.live:
        result.expect(result.gap <= limits.gap, f"no grant for {result.gap:.2f} s")
        overtime = max(story.overtime for story in stories)
        result.expect(overtime <= limits.overtime, f"an acquire took {overtime:.2f} s more than its timeout")


def _judge_overlaps(stage: Stage, result: Verdict, pairs: list[tuple[Hold, Hold]]) -> None:
    for first, second in pairs:
        result.problems.append(
            f"at {second.granted - stage.opened:.4f} s {second.worker} was granted {second.token.hex()}, "
            f"{first.end - second.granted:.4f} s before the end of {first.token.hex()} that "
            f"{first.worker} had from {first.granted - stage.opened:.4f} s"
        )
    result.expect(result.lost_updates == 0, f"{result.lost_updates} updates lost")


def _judge_majorities(result: Verdict, holds: list[Hold], truths: list[Truth]) -> None:
    for hold, late in verdict.overstated(holds, truths, NEED):
        result.problems.append(
            f"{hold.worker} stated a deadline of {hold.token.hex()} that is {late:.4f} s later than its "
            f"majority's keys: {verdict.where(hold, truths)}"
        )
    for hold, moment in verdict.uncovered(holds, truths, NEED):
        result.problems.append(
            f"{hold.worker} held {hold.token.hex()} without a majority, {moment - hold.granted:.4f} s after "
            f"its grant and {hold.deadline - moment:.4f} s before its deadline: {verdict.where(hold, truths)}"
        )
