"""The catalogue of mutants fits the source: each change is still possible, in one place only."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).parents[3]
#: Mutants that tests once did not catch.
REQUIRED = {
    "a-reader-shortens-the-set",
    "durable-now-was-not-before",
    "a-larger-counter-vouches",
    "ticket-from-too-few-masters",
    "batch-granted-by-a-minority",
    "batch-granted-too-late",
    "batch-of-any-size",
    "children-draw-equal-tokens",
    "dead-waiters-stay",
    "earlier-rounds-forgotten",
    "marker-not-obeyed",
    "parts-shift",
    "released-though-lost",
    "round-beyond-the-time",
    "slow-masters-pass-for-contention",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place(mutant: Mutant) -> None:
    source = (ROOT / mutant.file).read_text()
    assert source.count(mutant.old) == 1, f"{mutant.file} was changed: adapt {mutant.name}"
    assert mutant.new != mutant.old
    if mutant.file.endswith(".py"):
        ast.parse(source.replace(mutant.old, mutant.new))
    for judge in mutant.tests.split():
        path, _, name = judge.partition("::")
        assert not name or f"def {name}(" in (ROOT / path).read_text()


def test_the_catalogue_is_large_and_has_what_once_survived() -> None:
    assert len(MUTANTS) >= 80
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
    assert {mutant.name for mutant in MUTANTS} >= REQUIRED
    areas = {"wire", "engine", "algorithm", "masters", "locks", "threads", "exporters", "otel.py"}
    areas |= {"aio", "cli", "integrations", "c"}
    assert {mutant.area for mutant in MUTANTS} == areas
