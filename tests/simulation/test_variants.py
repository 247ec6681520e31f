"""What is broken on purpose is convicted: else the runs of the real code would show nothing."""

from __future__ import annotations

import pytest
from simulation.choices import recorded, seeded
from simulation.many_runs import explain, replay, simplest
from simulation.scenario import run
from simulation.variants import VARIANTS, Variant

#: More than any conviction needs; the seeds are always the same.
MOST_RUNS = 4000


def convict(variant: Variant) -> dict[str, int]:
    """For each rule that the variant breaks, the first seed of a run that shows it."""
    found: dict[str, int] = {}
    with variant.applied():
        for seed in range(variant.seed, variant.seed + MOST_RUNS):
            for rule in run(seeded(seed, variant.first), careless=variant.careless).broken():
                found.setdefault(rule, seed)
            if variant.breaks <= found.keys():
                break
    return found


@pytest.mark.timeout(600)  # seconds of work, on a machine that may be busy
@pytest.mark.parametrize("name", VARIANTS)
def test_broken_variant_is_convicted(name: str) -> None:
    found = convict(VARIANTS[name])
    assert VARIANTS[name].breaks <= found.keys(), f"only {found} in {MOST_RUNS} runs"


def test_variants_are_gone_afterwards() -> None:
    seed = convict(VARIANTS["delete without compare"])["S2"]
    assert not run(seeded(seed)).broken()


@pytest.mark.timeout(600)
def test_conviction_can_be_replayed_and_shrunk_to_what_matters() -> None:
    name = "delete without compare"
    seed = convict(VARIANTS[name])["S1"]
    found = replay(seeded(seed), name)
    short = simplest(found.choices.taken, "S1", name)
    assert len(short.story.splitlines()) < len(found.story.splitlines())
    assert sum(map(bool, short.choices.taken)) <= 25
    again = replay(recorded(short.choices.to_replay()), name)
    assert (again.story, again.violations) == (short.story, short.violations)
    assert f"--variant {name!r} --replay {short.choices.to_replay()}" in explain(short, name)
