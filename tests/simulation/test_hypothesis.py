"""The same runs with hypothesis as their chance, which looks for a violation and would shrink it."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from simulation.choices import recorded
from simulation.many_runs import explain, replay
from simulation.scenario import run
from support.thorough import amount

#: The choices that hypothesis makes: the processes, the faults, and the first delays. Those behind
#: them are the most harmless.
CHOICES = st.binary(min_size=30, max_size=120)

#: Without the phase that explains a failure: it traces each line of each run, for a text that is not read.
PHASES = Phase.generate, Phase.shrink
QUIET = list(HealthCheck)
EXAMPLES = amount(25, 300, twice=300)


@settings(max_examples=EXAMPLES, database=None, derandomize=True, suppress_health_check=QUIET, phases=PHASES)
@given(CHOICES)
def test_hypothesis_finds_nothing_in_the_real_code(choices: bytes) -> None:
    result = run(recorded(choices))
    assert not result.violations, explain(replay(recorded(choices)))
