"""Statistics of turns: percentiles, medians over rounds, ratios within rounds.

On a shared machine only ratios between turns of the same round mean anything. The median of these ratios
is reported and judged.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

#: The number of quantiles that are kept for the plot.
POINTS = 200


@dataclass
class Turn:
    """One implementation in one round. ``numbers``: by name, times in µs. ``curve``: quantiles in µs."""

    numbers: dict[str, float]
    curve: list[float] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    error: str = ""


#: Turns by scenario and by the implementation's label, in the order of the rounds.
Turns = dict[str, dict[str, list[Turn]]]


def summed_up(result: dict[str, Any]) -> Turn:
    """The output of an implementation's process, with percentiles instead of the samples."""
    numbers = dict(result.get("numbers", {}))
    numbers["failed"] = result.get("failed", 0)
    samples = sorted(sample / 1000 for sample in result.get("samples", []))
    if samples:
        numbers |= {"p50": percentile(samples, 50), "p99": percentile(samples, 99)}
        numbers["locks/s"] = result["locks"] / result["seconds"]
    curve = [percentile(samples, 100 * point / POINTS) for point in range(POINTS)] if samples else []
    return Turn(numbers, curve, result.get("info", {}), result.get("error", ""))


def percentile(ordered: Sequence[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def over_rounds(
    turns: Sequence[Turn], name: str, pick: Callable[[list[float]], float] = statistics.median
) -> float | None:
    """The median of a number over the turns, or another pick; None where no turn has it."""
    values = [turn.numbers[name] for turn in turns if name in turn.numbers]
    return pick(values) if values else None


def ratio(turns: dict[str, list[Turn]], name: str, label: str, *against: str) -> float | None:
    """The median over the rounds of ``label`` / the largest of ``against`` in the same round."""
    rivals = [turns[rival] for rival in against if turns.get(rival)]
    ratios = []
    for number, turn in enumerate(turns.get(label, [])):
        there = [rival[number].numbers.get(name, 0.0) for rival in rivals if number < len(rival)]
        if name in turn.numbers and any(there):
            ratios.append(turn.numbers[name] / max(there))
    return statistics.median(ratios) if ratios else None
