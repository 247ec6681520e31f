"""The same runs with hypothesis as their chance: it looks for a violation and shrinks it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from simulation.choices import recorded
from simulation.many_runs import explain, replay
from simulation.scenario import run
from support.thorough import amount

#: The choices that hypothesis makes: the processes, the faults, and the first delays. Those behind
#: them are the most harmless.
CHOICES = st.binary(min_size=30, max_size=120)

#: Three masters, of which a quorum decides, and clients that only acquire and release: runs are short.
PLAIN = bytes(3)

#: Variants and the rule that each breaks; the second takes long.
SHRUNK = [("delete without compare", "S1"), ("release on a new connection", "L2")][: amount(1, 2)]

#: Without the phase that explains a failure: it traces each line of each run, for a text that is not read.
PHASES = Phase.generate, Phase.shrink
SETTINGS = settings(
    database=None, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), phases=PHASES
)


@settings(SETTINGS, max_examples=300)
@given(CHOICES)
def test_hypothesis_finds_nothing_in_the_real_code(choices: bytes) -> None:
    result = run(recorded(choices))
    assert not result.violations, explain(replay(recorded(choices)))


@pytest.mark.timeout(600)  # some seconds of work, on a machine that may be busy
@pytest.mark.parametrize(("name", "rule"), SHRUNK)
def test_hypothesis_shrinks_a_violation_to_a_short_schedule(name: str, rule: str) -> None:
    def fails(choices: bytes) -> bool:
        return rule in replay(recorded(PLAIN + choices), name, tracing=False).broken()

    choices = PLAIN + find(CHOICES, fails, settings=settings(SETTINGS, max_examples=amount(600, 2000)))
    result = replay(recorded(choices), name)
    assert sum(map(bool, choices)) <= 15, result.story
    assert len(result.story.splitlines()) <= 100, result.story
    assert replay(recorded(result.choices.to_replay()), name).story == result.story
