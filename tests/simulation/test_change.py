"""Clients of two adjacent steps of a change of the masters, under every kind of fault."""

from __future__ import annotations

from collections import Counter

import pytest
from simulation.choices import seeded
from simulation.scenario import KINDS, MASTERS, run
from support.thorough import amount

#: By change: the old list and the new one, as masks.
CHANGES = {
    "1 to 3": (0b00001, 0b00111),
    "3 to 5": (0b00111, 0b11111),
    "one of 3 replaced": (0b00111, 0b01011),
    "5 to 3": (0b11111, 0b00111),
}
#: Of each change, phase and kind of clients.
RUNS = amount(2, 200, twice=6)


def broken(steps: tuple[tuple[int, ...], ...], kind: str, runs: int) -> Counter[str]:
    """The rules that runs break, with how often."""
    found: Counter[str] = Counter()
    for seed in range(runs):
        first = (MASTERS.index(5), seed % 2, KINDS.index(kind))
        found.update(run(seeded(seed, first), steps=steps).broken())
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("change", CHANGES)
def test_clients_of_adjacent_steps_break_no_rule(change: str) -> None:
    old, new = CHANGES[change]
    for phase in (((old,), (new, old)), ((new, old), (new,))):
        for kind in KINDS:
            assert not broken(phase, kind, RUNS), (phase, kind)


@pytest.mark.timeout(600)
def test_clients_of_both_lists_without_a_step_between_are_two_holders() -> None:
    old, new = CHANGES["3 to 5"]
    assert broken(((old,), (new,)), "plain", 60)["S1"]
