"""What the turns add up to: medians, ratios within rounds, bars; as JSON and as Markdown."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from contestants import Turn

FLOOR = "floor1"

#: A load average above this, before the start, is somebody else's work.
QUIET = 0.75


class Bar(NamedTuple):
    """The p50 of ``who`` must be at most ``most`` times that of ``against``."""

    who: str
    against: str
    most: float


BARS = (
    Bar("native", FLOOR, 1.00),
    Bar("native-all", FLOOR, 1.08),
    Bar("native", "redlock-py", 1 / 4.5),
    Bar("native", "pottery", 1 / 12),
    Bar("python", "redlock-py", 1 / 2),
)


def build(
    setting: dict[str, Any], turns: dict[str, list[Turn]], missing: dict[str, str], judged: bool
) -> dict[str, Any]:
    """The whole result; bars are judged only where enough was measured to mean something."""
    return {
        "setting": setting,
        "contestants": {name: summary(name, turns) for name in turns},
        "missing": missing,
        "bars": [judge(bar, turns) for bar in BARS if {bar.who, bar.against} <= turns.keys()]
        if judged
        else [],
    }


def summary(name: str, turns: dict[str, list[Turn]]) -> dict[str, Any]:
    """Microseconds and ratios of one contestant: medians over its turns, and the p50 of each."""
    own = turns[name]
    return {
        "p50": statistics.median(p50(turn) for turn in own),
        "p99": statistics.median(percentile(turn, 99) for turn in own),
        "locks/s": statistics.median(1e9 / statistics.mean(turn.samples) for turn in own),
        "of floor": ratio(name, FLOOR, turns) if FLOOR in turns else None,
        "rounds": [round(p50(turn), 1) for turn in own],
        "info": own[0].info,
    }


def judge(bar: Bar, turns: dict[str, list[Turn]]) -> dict[str, Any]:
    measured = ratio(bar.who, bar.against, turns)
    return {**bar._asdict(), "measured": measured, "met": measured <= bar.most}


def ratio(who: str, against: str, turns: dict[str, list[Turn]]) -> float:
    """The median over the rounds of p50 by p50, each taken within one round."""
    pairs = zip(turns[who], turns[against], strict=False)
    return statistics.median(p50(one) / p50(other) for one, other in pairs)


def p50(turn: Turn) -> float:
    return percentile(turn, 50)


def percentile(turn: Turn, percent: int) -> float:
    """In microseconds."""
    ordered = sorted(turn.samples)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] / 1000


def markdown(result: dict[str, Any]) -> str:
    """The tables, for people."""
    setting = result["setting"]
    lines = [
        f"Acquire + release, one caller, {setting['masters']} masters ({setting['server']}), "
        f"{setting['rounds']} rounds of {setting['cycles']} cycles; {setting['machine']}, "
        f"Python {setting['python']}, load average {setting['load average']}, {setting['date']}.",
        *busy(setting),
        "",
        "| contestant | p50 µs | p99 µs | locks/s | p50 of floor | release | versions |",
        "|---|--:|--:|--:|--:|---|---|",
    ]
    for name, one in result["contestants"].items():
        share = f"{one['of floor']:.2f}" if one["of floor"] else ""
        paths = ", ".join(one["info"].get("paths", []))
        versions = ", ".join(f"{key} {value}" for key, value in one["info"].get("versions", {}).items())
        lines.append(
            f"| {name} | {one['p50']:.0f} | {one['p99']:.0f} | {one['locks/s']:.0f} | {share} "
            f"| {paths} | {versions} |"
        )
    lines += [f"\nNot measured: {name}: {why}" for name, why in result["missing"].items()]
    if result["bars"]:
        lines += ["", "| bar | must be at most | is | |", "|---|--:|--:|---|"]
    for bar in result["bars"]:
        verdict = "met" if bar["met"] else "MISSED"
        lines.append(
            f"| {bar['who']} / {bar['against']} | {bar['most']:.3f} | {bar['measured']:.3f} | {verdict} |"
        )
    return "\n".join(lines)


def busy(setting: dict[str, Any]) -> list[str]:
    """A warning: even ratios shift where others want the same cores."""
    if setting["load average"][0] <= QUIET:
        return []
    return ["", "**The machine was busy before this began: do not quote these numbers.**"]


def write(result: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compare.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "compare.md").write_text(markdown(result) + "\n")
