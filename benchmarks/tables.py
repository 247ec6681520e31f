"""The result as Markdown tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

#: A load average above this, before the start, means that other processes are busy.
QUIET = 0.75

#: The summaries of report.py by scenario and implementation.
Scenarios = dict[str, dict[str, dict[str, Any]]]


def markdown(result: dict[str, Any]) -> str:
    """All tables that have results."""
    judged = section("Thresholds", thresholds_table(result["thresholds"]))
    return "\n".join([measured(result), *judged])


def measured(result: dict[str, Any]) -> str:
    """The setting and all tables of numbers that have results."""
    scenarios = result["scenarios"]
    sections = [
        [setting_line(result["setting"])],
        section("One caller", caller_table(scenarios)),
        section("Threads: locks/s", concurrency_table(scenarios, "threads", "threads", THREADS)),
        section("asyncio: locks/s", concurrency_table(scenarios, "tasks", "tasks", TASKS)),
        section("Batches: locks/s with acquire_many + release_many", batch_table(scenarios)),
        section("Number of masters", plain_table(scenarios, "masters-", CYCLE)),
        section("The release path", plain_table(scenarios, "release", CYCLE)),
        section("One master 20 ms late", plain_table(scenarios, "late", CYCLE)),
        section("One master stopped", plain_table(scenarios, "stopped", STOPPED)),
        section(
            "Contention: 8 processes, one lock, kept for 1 ms",
            plain_table(scenarios, "contention", CONTENTION),
        ),
        section("Waiting for a lock that is released", plain_table(scenarios, "waiting", HAND_OVER)),
        section("Memory", plain_table(scenarios, "memory", MEMORY)),
        section("Import", import_table(scenarios)),
        section("Not measured", [f"- {name}: {why}" for name, why in result["missing"].items()]),
    ]
    return "\n".join(line for lines in sections for line in lines).strip()


def for_users(result: dict[str, Any]) -> str:
    """The setting and two tables: what somebody who chooses a library does not see in the charts."""
    scenarios = result["scenarios"]
    sections = [
        [setting_line(result["setting"])],
        section("One caller", caller_table(scenarios, details=False)),
        section("One master 20 ms late", plain_table(scenarios, "late", CYCLE)),
    ]
    return "\n".join(line for lines in sections for line in lines).strip()


def setting_line(setting: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in setting["versions"].items())
    servers = "; ".join(dict.fromkeys(setting.get("servers", {}).values()))
    lines = (
        f"Measured on {setting['date']}: {setting['machine']}, Python {setting['python']}, "
        f"load average before and after {setting['load average']}. "
        f"Servers (and release path): {servers}. {versions}."
    )
    if setting["load average"][0] > QUIET:
        lines += "\n\n**The machine was busy before this began: do not quote these numbers.**"
    return lines


def section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"### {title}", "", *lines] if lines else []


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """A table; ``words``: the number of text columns, at the left."""
    if not rows:
        return []
    rule = ["---" if column < words else "--:" for column in range(len(head))]
    return [f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in (head, rule, *rows)]


def thresholds_table(judged: Sequence[dict[str, Any]]) -> list[str]:
    rows = [
        (
            one["case"],
            one["must"],
            one["aim"],
            f"**{one['is']}**" if one["is"] else "",
            one["verdict"] + (", aim reached" if one["aim reached"] else ""),
        )
        for one in judged
    ]
    return table(("case", "must", "aim", "measured", ""), rows)


def caller_table(scenarios: Scenarios, details: bool = True) -> list[str]:
    """``details``: with the keys that were left, the way of a release, and versions."""
    rows = []
    for label, one in scenarios.get("caller", {}).items():
        numbers, info = one["numbers"], one["info"]
        versions = ", ".join(f"{name} {version}" for name, version in info.get("versions", {}).items())
        share = one["of floor"].get("p50")
        rows.append(
            (
                name_of(label),
                *cells(numbers, ("p50", "p99", "locks/s")),
                f"{share:.2f}" if share else "",
                amount(numbers.get("left")),
                ", ".join(info.get("paths", [])),
                versions,
            )
        )
    measured = ("p50 µs", "p99 µs", "locks/s", "of the floor", "keys left")
    if not details:
        return table(("implementation", *measured[:-1]), [row[:5] for row in rows])
    lines = table(("implementation", *measured, "release", "versions"), rows)
    if lines:
        lines[1] = "|---|--:|--:|--:|--:|--:|---|---|"
    return lines


#: The columns of the concurrency tables, and the scenario of each.
THREADS = {1: "caller", 8: "threads-8", 32: "threads-32", 64: "threads-64"}
TASKS = {1: "caller", 64: "tasks-64", 512: "tasks-512"}
BATCHES = {size: f"batch-{size}" for size in (8, 64, 256, 1024, 4096)}


def concurrency_table(scenarios: Scenarios, family: str, unit: str, columns: dict[int, str]) -> list[str]:
    """Rows: every implementation that was measured with many callers."""
    there = {n: scenario for n, scenario in columns.items() if scenario in scenarios}
    labels = dict.fromkeys(
        label for name, scenario in scenarios.items() if name.startswith(f"{family}-") for label in scenario
    )
    rows = []
    for label in labels:
        found = [scenarios[scenario].get(label, {}).get("numbers", {}) for scenario in there.values()]
        rows.append((name_of(label), *(amount(numbers.get("locks/s")) for numbers in found)))
    heads = (f"{n} {unit}" if n > 1 else f"1 {unit.removesuffix('s')}" for n in there)
    return table(("implementation", *heads), rows)


def batch_table(scenarios: Scenarios) -> list[str]:
    there = {size: scenarios[scenario] for size, scenario in BATCHES.items() if scenario in scenarios}
    labels = dict.fromkeys(label for scenario in there.values() for label in scenario)
    rows = []
    for label in labels:
        rows.append((name_of(label), *(of_floor(scenario.get(label)) for scenario in there.values())))
    return table(("implementation", *(f"batch {size}" for size in there)), rows)


def of_floor(one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    share = one["of floor"].get("locks/s")
    rate = amount(one["numbers"].get("locks/s"))
    return f"{rate} ({share:.2f})" if share else rate


#: The columns of the plain tables: the head, the number, and its format.
Columns = dict[str, tuple[str, Callable[[float | None], str]]]


def amount(value: float | None) -> str:
    """Three significant digits: 12,300; 4.56."""
    if value is None:
        return ""
    if value == 0 or (value == int(value) and value < 1000):
        return f"{value:.0f}"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(digits, 0)}f}"


CYCLE: Columns = {"p50 µs": ("p50", amount), "p99 µs": ("p99", amount), "locks/s": ("locks/s", amount)}
STOPPED: Columns = {
    "locks/s before": ("before", amount),
    "after, of that": ("of before", amount),
    "failed acquires": ("failed", amount),
    "replies owed, at most": ("owed", amount),
}
CONTENTION: Columns = {
    "locks/s": ("locks/s", amount),
    "SETs for each lock": ("tries", amount),
    "wait p50 µs": ("p50", amount),
    "wait p99 µs": ("p99", amount),
    "fewest, of a fair share": ("share", amount),
}
HAND_OVER: Columns = {"release to the next grant in another process, ms": ("ms", amount)}
MEMORY: Columns = {"bytes per held lock": ("per lock", amount), "kB per client": ("per client kB", amount)}


def plain_table(scenarios: Scenarios, family: str, columns: Columns) -> list[str]:
    """One row for each implementation of the scenarios of a family."""
    rows = []
    for scenario, parts in scenarios.items():
        if not scenario.startswith(family):
            continue
        where = f"N = {scenario.removeprefix(family)}: " if family.endswith("-") else ""
        for label, one in parts.items():
            written = (write_(one["numbers"].get(name)) for name, write_ in columns.values())
            rows.append((f"{where}{name_of(label)}", *written))
    return table(("", *columns), rows)


def import_table(scenarios: Scenarios) -> list[str]:
    rows = []
    for label, one in scenarios.get("import", {}).items():
        heavy = ", ".join(one["info"].get("heavy", [])) or "none"
        rows.append((f"`{label}`", heavy, amount(one["numbers"].get("ms"))))
    return table(("", "heavy modules that come with it", "ms"), rows, words=2)


def cells(numbers: dict[str, float], names: Iterable[str]) -> list[str]:
    return [amount(numbers.get(name)) for name in names]


def name_of(label: str) -> str:
    """Ours in bold."""
    return f"**{label}**" if label.startswith(("native", "python")) else label
