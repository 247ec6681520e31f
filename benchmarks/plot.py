"""The plots: how long one caller's cycles take, and how much many callers get done together."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Sequence

from stats import Turn, Turns, over_rounds
from svg import Point, Scale, Sheet, short, spread
from tables import TASKS, THREADS

WIDTH = 840
LEFT, RIGHT, TOP = 74, 270, 84

#: How each contestant is drawn; all others are peers.
KINDS = {
    "floor": "floor dashed",
    "native": "native wide",
    "native asyncio": "native wide",
    "native decide=all": "third",
    "native uvloop": "third wide",
    "python": "second wide",
    "python asyncio": "second wide",
    "own connections per thread": "own",
}


def kind(label: str) -> str:
    return KINDS.get(label, "peer")


def colour(label: str) -> str:
    return kind(label).partition(" ")[0]


def words(label: str) -> str:
    return "strong " + colour(label) if "wide" in kind(label) else colour(label).replace("peer", "faint")


# --- latency of one caller ---------------------------------------------------------------------

ROW = 34
#: Of the distribution, in decades: how far each sample is smeared.
SMEAR = 0.02


def latency(turns: Turns) -> str:
    """A ridge for each contestant, the fastest on top."""
    curves = {label: median_curve(own) for label, own in turns.get("caller", {}).items()}
    curves = dict(sorted(((label, c) for label, c in curves.items() if c), key=lambda item: middle(item[1])))
    if not curves:
        return ""
    left = 250
    bottom = TOP + 20 + ROW * len(curves)
    sheet = Sheet(
        WIDTH,
        bottom + 50,
        "One caller: how long acquire + release takes",
        "distribution over all cycles, median marked; further left is faster",
    )
    low = min(curve[1] for curve in curves.values()) * 0.8
    high = max(curve[-3] for curve in curves.values()) * 1.25
    scale = Scale(low, high, left, WIDTH - 90)
    for tick in scale.ticks():
        sheet.line([(scale(tick), TOP - 6), (scale(tick), bottom)], "grid")
        sheet.write(scale(tick), bottom + 18, f"{tick:,.0f}", "small faint", "middle")
    sheet.write((left + WIDTH - 90) / 2, bottom + 38, "µs, logarithmic", "small faint", "middle")
    for row, (label, curve) in enumerate(curves.items()):
        ridge(sheet, scale, TOP + 20 + ROW * (row + 0.75), label, curve)
    return sheet.text


def ridge(sheet: Sheet, scale: Scale, base: float, label: str, curve: Sequence[float]) -> None:
    heights = density(curve, scale)
    top = max(height for _, height in heights)
    outline = [(x, base - height / top * ROW * 0.95) for x, height in heights]
    sheet.area([(outline[0][0], base), *outline, (outline[-1][0], base)], colour(label))
    sheet.line(outline, kind(label))
    x = scale(middle(curve))
    sheet.line([(x, base), (x, base - ROW * 0.6)], f"{colour(label)} wide")
    sheet.write(240, base - 4, label, words(label), "end")
    sheet.write(WIDTH - 20, base - 4, f"{middle(curve):,.0f} µs", words(label), "end")


def density(curve: Sequence[float], scale: Scale) -> list[Point]:
    """Where the quantiles lie close together it is high."""
    logs = [math.log10(value) for value in curve if value > 0]
    start, stop = math.log10(scale.low), math.log10(scale.high)
    points = []
    for step in range(201):
        at = start + (stop - start) * step / 200
        height = sum(math.exp(-(((at - one) / SMEAR) ** 2) / 2) for one in logs)
        if height > 0.02:
            points.append((scale(10**at), height))
    return points or [(scale(middle(curve)), 1.0)]


def median_curve(turns: Sequence[Turn]) -> list[float]:
    """Of the rounds, quantile by quantile."""
    curves = [turn.curve for turn in turns if turn.curve]
    return [statistics.median(values) for values in zip(*curves, strict=True)]


def middle(curve: Sequence[float]) -> float:
    return curve[len(curve) // 2]


# --- throughput by concurrency -----------------------------------------------------------------

HEIGHT = 490
#: The upper end of its vertical scale.
UP = TOP + 16


def throughput(turns: Turns, columns: dict[int, str], unit: str, family: str) -> str:
    """A line for each contestant; both scales logarithmic."""
    lines = rates(turns, columns, family)
    if not lines:
        return ""
    callers = sorted({n for line in lines.values() for n, _ in line})
    values = [rate for line in lines.values() for _, rate in line]
    bottom = HEIGHT - 60
    across = Scale(min(callers), max(max(callers), min(callers) * 2), LEFT, WIDTH - RIGHT)
    up = Scale(min(values) * 0.8, max(values) * 1.3, bottom, UP)
    sheet = Sheet(
        WIDTH,
        HEIGHT,
        f"Throughput by number of {unit}",
        "locks acquired and released per second, one process; higher is better",
    )
    for tick in up.ticks():
        sheet.line([(LEFT, up(tick)), (WIDTH - RIGHT, up(tick))], "grid")
        sheet.write(LEFT - 10, up(tick) + 4, short(tick), "small faint", "end")
    for n in callers:
        sheet.write(across(n), bottom + 20, str(n), "small faint", "middle")
    sheet.write((LEFT + WIDTH - RIGHT) / 2, bottom + 42, f"{unit}, logarithmic", "small faint", "middle")
    sheet.write(LEFT - 10, UP - 12, "locks/s", "small faint", "end")
    draw(sheet, lines, across, up)
    return sheet.text


def draw(sheet: Sheet, lines: dict[str, list[Point]], across: Scale, up: Scale) -> None:
    """The lines, ours last and so on top, each with its name at its end."""
    order = sorted(lines, key=lambda label: ("wide" in kind(label), label))
    ends = spread([up(lines[label][-1][1]) for label in order], 17, UP, HEIGHT - 60)
    for label, end in zip(order, ends, strict=True):
        points = [(across(n), up(rate)) for n, rate in lines[label]]
        sheet.line(points, kind(label))
        for x, y in points:
            sheet.dot(x, y, colour(label))
        sheet.line([(points[-1][0] + 5, points[-1][1]), (WIDTH - RIGHT + 16, end)], "grid")
        text = f"{label.replace(' (no Redlock)', '')}  {short(lines[label][-1][1])}"
        sheet.write(WIDTH - RIGHT + 20, end + 4, text, words(label))


def rates(turns: Turns, columns: dict[int, str], family: str) -> dict[str, list[Point]]:
    """For each contestant that was there with many callers: locks/s by their number."""
    there = dict.fromkeys(
        label for name, scenario in turns.items() if name.startswith(f"{family}-") for label in scenario
    )
    lines: dict[str, list[Point]] = {}
    for label in there:
        for n, name in columns.items():
            rate = over_rounds(turns.get(name, {}).get(label, []), "locks/s")
            if rate:
                lines.setdefault(label, []).append((n, rate))
    return lines


PLOTS: dict[str, Callable[[Turns], str]] = {
    "latency-of-one-caller": latency,
    "throughput-by-threads": functools.partial(throughput, columns=THREADS, unit="threads", family="threads"),
    "throughput-by-tasks": functools.partial(throughput, columns=TASKS, unit="tasks", family="tasks"),
}
