"""Draws the plots with matplotlib: the latency of one caller, the throughput of many callers.

matplotlib is in the ``bench`` extra. Without it a benchmark measures the same and draws nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from stats import POINTS, Turn, Turns, over_rounds
from tables import TASKS, THREADS

INSTALLED = importlib.util.find_spec("matplotlib") is not None

#: Colour and line of an implementation; all others are peers.
STYLES: dict[str, dict[str, Any]] = {
    "floor": {"color": "#38424f", "linestyle": "--"},
    "bare threads": {"color": "#38424f", "linestyle": ":"},
    "bare tasks": {"color": "#38424f", "linestyle": ":"},
    "native": {"color": "#0b62d6", "linewidth": 2.8},
    "native asyncio": {"color": "#0b62d6", "linewidth": 2.8},
    "native decide=all": {"color": "#7047d6"},
    "native uvloop": {"color": "#7047d6", "linewidth": 2.8},
    "python": {"color": "#0e9a8a", "linewidth": 2.8},
    "python asyncio": {"color": "#0e9a8a", "linewidth": 2.8},
    "own connections per thread": {"color": "#d9760a"},
}
PEER = {"color": "#a0a8b4"}

#: Text stays text, and the same numbers give the same file: no date, no random ids.
SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "redlock-fast", "font.family": "sans-serif"}
METADATA = {"Date": None, "Creator": None}

#: Percentiles of a box: its whiskers, its ends and its median.
BOX = {"whislo": 5, "q1": 25, "med": 50, "q3": 75, "whishi": 95}


def latency(turns: Turns) -> str:
    """A box for each implementation, the fastest on top."""
    curves = {label: median_curve(own) for label, own in turns.get("caller", {}).items()}
    order = sorted((label for label in curves if curves[label]), key=lambda label: middle(curves[label]))

    def draw(axes: Any) -> None:
        boxes = [
            {name: curves[label][percent * POINTS // 100] for name, percent in BOX.items()} for label in order
        ]
        drawn = axes.bxp(boxes, orientation="horizontal", showfliers=False, patch_artist=True)
        for box, label in zip(drawn["boxes"], order, strict=True):
            box.set(facecolor=style(label)["color"], alpha=0.5)
        names = [f"{label}   {middle(curves[label]):,.0f} µs" for label in order]
        axes.set_yticks(range(1, len(order) + 1), names)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_title("One caller: acquire + release, µs (box: quartiles, whiskers: p5 and p95)")
        ticks(axes.xaxis)

    return svg(draw, 1.2 + 0.35 * len(order)) if order else ""


def throughput(turns: Turns, columns: dict[int, str], unit: str, family: str) -> str:
    """A line for each implementation; the legend has the order of the lines' ends."""
    lines = rates(turns, columns, family)
    callers = sorted({n for line in lines.values() for n, _ in line})

    def draw(axes: Any) -> None:
        for label in sorted(lines, key=lambda label: -lines[label][-1][1]):
            name = f"{label.replace(' (no Redlock)', '')}  {lines[label][-1][1]:,.0f}"
            axes.plot(*zip(*lines[label], strict=True), label=name, marker="o", markersize=4, **style(label))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(callers, map(str, callers))
        axes.set_xlabel(unit)
        axes.set_title(f"Throughput by number of {unit}: locks/s, one process")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        ticks(axes.yaxis)

    return svg(draw, 5.0) if lines else ""


def waiters(rows: dict[tuple[str, int, int], dict[str, float]]) -> str:
    """Commands a grant by the callers of one client; a line for each kind."""

    def draw(axes: Any) -> None:
        for kind in dict.fromkeys(kind for kind, _, _ in rows):
            line = [(each, row["commands"]) for (k, n, each), row in rows.items() if (k, n) == (kind, 1)]
            axes.plot(*zip(*line, strict=True), label=kind, marker="o", markersize=4)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("callers of one client")
        axes.set_title("Commands a grant, all five masters together")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        ticks(axes.yaxis)

    return svg(draw, 4.0)


#: Grants a second with a hold of 1 ms of an earlier build, in which a release woke all waiters (2026-11-24).
HERD = {"plain": {1: 801, 8: 690, 32: 327, 100: 88}, "fair": {1: 763, 8: 588, 32: 482, 100: 296}}


def contention(rows: dict[Any, Any]) -> str:
    """Grants a second by the number of processes that want one lock, now and when all waiters were woken."""

    def draw(axes: Any) -> None:
        for kind, color in (("plain", "#0b62d6"), ("fair", "#0e9a8a")):
            own = [cell for cell in rows if (cell.kind, cell.callers) == (kind, 1)]
            found = [(cell.clients, rows[cell].rate) for cell in own]
            axes.plot(*zip(*found, strict=True), label=kind, marker="o", markersize=4, color=color)
            before = list(HERD[kind].items())
            axes.plot(*zip(*before, strict=True), label=f"{kind}, all woken", linestyle="--", color=color)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("processes that want the lock, which each holds for 1 ms")
        axes.set_title("Grants a second")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)

    return svg(draw, 4.0)


#: The bars of the overview: the best of this library, and all peers that were measured.
OVERVIEW = {
    "caller": ("One caller: acquire + release, µs (less is better)", "p50", ("native", "python")),
    "tasks-64": ("64 callers: locks/s (more is better)", "locks/s", ("native asyncio", "python asyncio")),
}


def overview(turns: Turns) -> str:
    """Two charts side by side: the time of one caller, the throughput of 64 callers."""
    panels = [
        functools.partial(bars, title=title, numbers=numbers, ours=ours)
        for scenario, (title, name, ours) in OVERVIEW.items()
        if (numbers := comparable(turns.get(scenario, {}), name, ours))
    ]
    return svg(panels, 3.0) if panels else ""


def comparable(scenario: dict[str, list[Turn]], name: str, ours: Sequence[str]) -> dict[str, float]:
    """A number of ``ours`` and of the Redlock peers with threads, or else with asyncio; the best first."""
    peers = [label for label in scenario if label not in STYLES and "(no Redlock)" not in label]
    plain = [label for label in peers if "asyncio" not in label and label != "aioredlock"] or peers
    found = {label: over_rounds(scenario.get(label, []), name) for label in (*ours, *plain)}
    numbers = {label: value for label, value in found.items() if value}
    return dict(sorted(numbers.items(), key=lambda item: item[1], reverse=name != "p50"))


def bars(axes: Any, title: str, numbers: dict[str, float], ours: Sequence[str]) -> None:
    names = [f"redlock-fast, {label}" if label in ours else label for label in numbers]
    drawn = axes.barh(names, numbers.values(), color=[style(label)["color"] for label in numbers])
    axes.bar_label(drawn, [f"{value:,.0f}" for value in numbers.values()], padding=4)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.set_axisbelow(True)
    axes.margins(x=0.15)
    axes.spines["bottom"].set_visible(False)
    axes.set_title(title, fontsize="medium")


def svg(draw: Callable[[Any], None] | Sequence[Callable[[Any], None]], height: float) -> str:
    """What ``draw`` puts on a sheet of that height (inches), as SVG; several functions: side by side."""
    import matplotlib
    from matplotlib.figure import Figure

    panels = draw if isinstance(draw, Sequence) else [draw]
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(9, height), layout="constrained")
        for place, panel in enumerate(panels, 1):
            axes = figure.add_subplot(1, len(panels), place)
            axes.spines[["top", "right"]].set_visible(False)
            panel(axes)
            axes.minorticks_off()
            axes.grid(alpha=0.3)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=METADATA)
    return text.getvalue()


def ticks(axis: Any) -> None:
    """1, 2, 5, 10, ... as 1k, 2k."""
    from matplotlib.ticker import EngFormatter, LogLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(EngFormatter(sep=""))


def style(label: str) -> dict[str, Any]:
    return STYLES.get(label, PEER)


def median_curve(turns: Sequence[Turn]) -> list[float]:
    """The median of the rounds, quantile by quantile."""
    curves = [turn.curve for turn in turns if turn.curve]
    return [statistics.median(values) for values in zip(*curves, strict=True)]


def middle(curve: Sequence[float]) -> float:
    return curve[len(curve) // 2]


def rates(turns: Turns, columns: dict[int, str], family: str) -> dict[str, list[tuple[int, float]]]:
    """Locks/s by the number of callers, for each implementation that was measured with many callers."""
    measured = dict.fromkeys(
        label for name, scenario in turns.items() if name.startswith(f"{family}-") for label in scenario
    )
    lines: dict[str, list[tuple[int, float]]] = {}
    for label in measured:
        for n, name in columns.items():
            rate = over_rounds(turns.get(name, {}).get(label, []), "locks/s")
            if rate:
                lines.setdefault(label, []).append((n, rate))
    return lines


PLOTS: dict[str, Callable[[Turns], str]] = {
    "overview": overview,
    "latency-of-one-caller": latency,
    "throughput-by-threads": functools.partial(throughput, columns=THREADS, unit="threads", family="threads"),
    "throughput-by-tasks": functools.partial(throughput, columns=TASKS, unit="tasks", family="tasks"),
}


def drawn(turns: Turns) -> dict[str, str]:
    """All plots that something was measured for, by the name of the file; none without matplotlib."""
    if not INSTALLED:
        return {}
    plots = {f"{name}.svg": draw(turns) for name, draw in PLOTS.items()}
    return {name: text for name, text in plots.items() if text}
