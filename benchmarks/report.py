"""Builds the result, writes it as JSON and Markdown, pastes it into the document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import document
from stats import Turn, Turns, over_rounds, ratio
from tables import for_users, markdown, measured, thresholds_table


def build(
    setting: dict[str, Any], turns: Turns, missing: dict[str, str], verdicts: list[dict[str, Any]]
) -> dict[str, Any]:
    """The result as JSON data; the verdicts are those of thresholds.py."""
    return {
        "setting": setting,
        "thresholds": verdicts,
        "scenarios": {
            name: {label: summary(scenario, label) for label in scenario} for name, scenario in turns.items()
        },
        "missing": missing,
    }


def summary(scenario: dict[str, list[Turn]], label: str) -> dict[str, Any]:
    """Of one implementation: the medians over its turns, each round, the ratios to the floor."""
    own = scenario[label]
    names = dict.fromkeys(name for turn in own for name in turn.numbers)
    of_floor = {
        name: ratio(scenario, name, label, "floor") for name in ("p50", "locks/s") if "floor" in scenario
    }
    return {
        "numbers": {name: over_rounds(own, name) for name in names},
        "of floor": of_floor,
        "rounds": [{name: round(value, 3) for name, value in turn.numbers.items()} for turn in own],
        "info": own[0].info,
    }


def write(result: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compare.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "compare.md").write_text(markdown(result) + "\n")


def paste_all(result: dict[str, Any]) -> None:
    """Paste two tables into the page for users, and all of them into the notes."""
    document.paste(document.PERFORMANCE, "bench", for_users(result))
    document.paste(document.NOTES, "bench", measured(result))
    document.paste(document.NOTES, "thresholds", "\n".join(thresholds_table(result["thresholds"])))
