"""The catalogue of mutants fits the source: each change is still possible, in one place only."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from pathlib import Path

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


@functools.cache
def text(file: str) -> str:
    return (ROOT / file).read_text()


def parses(source: str) -> bool:
    try:
        return bool(ast.parse(source))
    except SyntaxError:
        return False


def complaint(mutant: Mutant) -> str:
    """What is wrong with a mutant, if anything."""
    source = text(mutant.file)
    if source.count(mutant.old) != 1 or mutant.new == mutant.old:
        return f"{mutant.file} was changed: adapt it"
    if mutant.file.endswith(".py") and not parses(source.replace(mutant.old, mutant.new)):
        return "it is no Python"
    for judge in mutant.tests.split():
        path, _, name = judge.partition("::")
        if f"def {name}(" not in text(path) and name:
            return f"there is no {judge}"
    return ""


def test_a_mutant_changes_one_place() -> None:
    complaints = {mutant.name: complaint(mutant) for mutant in MUTANTS}
    assert {name: wrong for name, wrong in complaints.items() if wrong} == {}


def test_the_catalogue_is_large_and_has_what_once_survived() -> None:
    assert len(MUTANTS) >= 80
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
    assert {mutant.name for mutant in MUTANTS} >= REQUIRED
    areas = {"wire", "engine", "algorithm", "masters", "locks", "threads", "exporters", "otel.py"}
    areas |= {"aio", "cli", "compat", "integrations", "sharded", "c"}
    assert {mutant.area for mutant in MUTANTS} == areas
