"""Draws the plots with matplotlib, from numbers that are recorded in measured.json beside this file.

A benchmark that writes documents records its numbers there. ``python benchmarks/plot.py`` draws all plots
again, so a change of their look needs no new measurement. matplotlib is in the ``bench`` extra; without it a
benchmark measures the same and draws nothing.

A plot has no background, and each colour is a variable with a value for light and one for dark pages. Its
sheet is so narrow that the text can be read on a phone. Lines have their names at their ends.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from document import DOCS
from stats import Turns, over_rounds
from tables import TASKS, THREADS

INSTALLED = importlib.util.find_spec("matplotlib") is not None
RECORD = Path(__file__).with_name("measured.json")

#: Numbers by scenario and implementation, as in the tables: {"caller": {"floor": {"p50": 153, ...}}}.
Measured = Mapping[str, Mapping[str, Mapping[str, float]]]

#: Each colour of the drawing, its name in the file, and the colour on a dark page.
COLOURS = {
    "#1c2430": ("ink", "#e6eaf0"),
    "#5c6673": ("grey", "#a9b3c1"),
    "#c3cad3": ("grid", "#39424f"),
    "#0b62d6": ("blue", "#6cb0ff"),
    "#0b7f72": ("teal", "#3fd0bd"),
    "#7047d6": ("violet", "#b79cff"),
    "#b3261e": ("red", "#ff8f87"),
    "#8a5a00": ("brown", "#e0b15a"),
    "#a8268a": ("pink", "#ff9ae2"),
    "#4a6b00": ("olive", "#b4d65c"),
    "#a24a00": ("orange", "#ffae57"),
}
INK, GREY, GRID, BLUE, TEAL, VIOLET, RED, BROWN, PINK, OLIVE, ORANGE = COLOURS

#: Colour and line of each implementation; those of this library are thick.
STYLES: dict[str, dict[str, Any]] = {
    "floor": {"color": GREY, "linestyle": "--"},
    "bare threads": {"color": GREY, "linestyle": ":"},
    "bare tasks": {"color": GREY, "linestyle": ":"},
    "native": {"color": BLUE, "linewidth": 3},
    "native asyncio": {"color": BLUE, "linewidth": 3},
    "native decide=all": {"color": BLUE, "linestyle": ":"},
    "native uvloop": {"color": BLUE, "linestyle": "-.", "linewidth": 3},
    "python": {"color": TEAL, "linewidth": 3},
    "python asyncio": {"color": TEAL, "linewidth": 3},
    "own connections per thread": {"color": BLUE, "linestyle": (0, (1, 2))},
}
#: The lines of the peers, by the name of the library.
PEERS: dict[str, dict[str, Any]] = {
    "redlock-py": {"color": RED},
    "redlock-plus": {"color": PINK, "linestyle": "-."},
    "redlock-ng": {"color": ORANGE, "linestyle": "--"},
    "redlock": {"color": BROWN, "linestyle": ":"},
    "pyredlock": {"color": VIOLET, "linestyle": "--"},
    "pottery": {"color": OLIVE},
    "aioredlock": {"color": PINK},
    "redis-py": {"color": INK, "linestyle": "-."},
}
OTHER = {"color": GREY}

#: Inches: 500 px, which a phone shows at three quarters of that.
WIDTH = 5.2
#: Text stays text, and the same numbers give the same file: no date, no random ids.
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "redlock-fast",
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "lines.linewidth": 1.6,
}
METADATA = {"Date": None, "Creator": None}


def numbers_of(turns: Turns) -> dict[str, dict[str, dict[str, float]]]:
    """The medians that the plots need."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, scenario in turns.items():
        for label, own in scenario.items():
            values = {number: over_rounds(own, number) for number in ("p50", "p99", "locks/s")}
            found.setdefault(name, {})[label] = {key: value for key, value in values.items() if value}
    return found


def latency(measured: Measured) -> str:
    """A line from the median to the 99th percentile for each implementation, the fastest on top."""
    rows = {label: one for label, one in measured.get("caller", {}).items() if "p99" in one}
    order = sorted(rows, key=lambda label: rows[label]["p50"])

    def draw(axes: Any) -> None:
        for place, label in enumerate(order):
            middle, late = rows[label]["p50"], rows[label]["p99"]
            color = style(label)["color"]
            axes.plot([middle, late], [place, place], color=color, linewidth=2)
            axes.plot([middle], [place], color=color, marker="o", markersize=7)
            axes.annotate(f"{middle:,.0f}", (late, place), (6, 0), **BESIDE, color=color)
        axes.set_yticks(range(len(order)), [short(label, kind=True) for label in order])
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.margins(x=0.16)
        axes.set_title("One caller: µs for acquire + release\n(dot: median, end of the line: p99)")
        ticks(axes.xaxis)

    return svg([draw], 1.2 + 0.31 * len(order), title="The time of one caller") if order else ""


def throughput(measured: Measured, columns: dict[int, str], unit: str, family: str) -> str:
    """A line for each implementation, with its name and its last value at its end."""
    lines = rates(measured, columns, family)
    callers = sorted({n for line in lines.values() for n, _ in line})

    def draw(axes: Any) -> None:
        for label, line in lines.items():
            axes.plot(*zip(*line, strict=True), marker="o", markersize=4, **style(label))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(callers, map(str, callers))
        axes.set_xlabel(f"{unit} of one process")
        axes.set_title("Locks per second")
        ticks(axes.yaxis)
        name_lines(axes, lines)

    return svg([draw], 5.4, title=f"Locks per second by the number of {unit}") if lines else ""


def contention(measured: Measured) -> str:
    """Grants a second by the number of processes that want one lock, now and when all waiters were woken."""
    found = measured.get("contention", {})
    lines = {
        label: sorted((int(count), rate) for count, rate in line.items()) for label, line in found.items()
    }

    def draw(axes: Any) -> None:
        for label, line in lines.items():
            axes.plot(*zip(*line, strict=True), marker="o", markersize=4, **contended(label))
        axes.set_xscale("log")
        counts = sorted({count for line in lines.values() for count, _ in line})
        axes.set_xticks(counts, map(str, counts))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("processes that want one lock, for 1 ms each")
        axes.set_title("Many want one lock: grants per second")
        name_lines(axes, lines, contended)

    return svg([draw], 3.6, title="Grants per second under contention") if lines else ""


def contended(label: str) -> dict[str, Any]:
    before = {"linestyle": "--"} if "woken" in label else {"linewidth": 3}
    return {"color": BLUE if label.startswith("plain") else TEAL, **before}


#: The bars of the overview: the best of this library, and all peers that were measured.
OVERVIEW = {
    "caller": ("One caller: µs for acquire + release", "p50", ("native", "python")),
    "tasks-64": ("64 callers: locks per second", "locks/s", ("native asyncio", "python asyncio")),
}


def overview(measured: Measured) -> str:
    """Two charts, one below the other: the time of one caller, the throughput of 64 callers."""
    panels = [
        functools.partial(bars, title=title, numbers=numbers, ours=ours)
        for scenario, (title, name, ours) in OVERVIEW.items()
        if (numbers := comparable(measured.get(scenario, {}), name, ours))
    ]
    rows = sum(len(panel.keywords["numbers"]) + 2 for panel in panels)
    return svg(panels, 0.26 * rows, title="redlock-fast and other libraries") if panels else ""


def comparable(scenario: Any, name: str, ours: Sequence[str]) -> dict[str, float]:
    """A number of ``ours`` and of the Redlock peers with threads, or else with asyncio; the best first."""
    peers = [label for label in scenario if label not in STYLES and "(no Redlock)" not in label]
    plain = [label for label in peers if "asyncio" not in label and label != "aioredlock"] or peers
    numbers = {label: scenario[label][name] for label in (*ours, *plain) if name in scenario.get(label, {})}
    return dict(sorted(numbers.items(), key=lambda item: item[1], reverse=name != "p50"))


def bars(axes: Any, title: str, numbers: dict[str, float], ours: Sequence[str]) -> None:
    names = [
        f"redlock-fast, {label.removesuffix(' asyncio')}" if label in ours else short(label)
        for label in numbers
    ]
    drawn = axes.barh(names, numbers.values(), color=[style(label)["color"] for label in numbers])
    axes.bar_label(drawn, [f"{value:,.0f}" for value in numbers.values()], padding=4)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.set_axisbelow(True)
    axes.margins(x=0.17)
    axes.spines["bottom"].set_visible(False)
    axes.set_title(title)


#: Text to the right of a point.
BESIDE: dict[str, Any] = {"textcoords": "offset points", "va": "center", "annotation_clip": False}
#: Points between two names that would be one over the other.
APART = 13.5


def name_lines(axes: Any, lines: Any, style_of: Callable[[str], dict[str, Any]] | None = None) -> None:
    """Write the name of each line, and its last value, beside its end; names that collide move apart."""
    axes.figure.canvas.draw()
    to_points = 72 / axes.figure.dpi
    right = max(line[-1][0] for line in lines.values())
    ends = sorted(lines, key=lambda label: lines[label][-1][1])
    last = -1e9
    for label in ends:
        value = lines[label][-1][1]
        height = axes.transData.transform((right, value))[1] * to_points
        place = max(height, last + APART)
        last = place
        axes.annotate(
            f"{short(label)} {value:,.0f}",
            (right, value),
            (9, place - height),
            **BESIDE,
            color=(style_of or style)(label)["color"],
        )


def short(label: str, kind: bool = False) -> str:
    """A name that fits beside a line. ``kind``: with "asyncio", where a plot has both kinds of a library."""
    name = label.replace(" (no Redlock)", "").replace(" one master", ", one master")
    name = name.replace("own connections per thread", "own connections").replace(
        " with hiredis", " + hiredis"
    )
    return name if kind or name.startswith(("native", "python")) else name.replace(" asyncio", "")


def svg(panels: Sequence[Callable[[Any], None]], height: float, title: str) -> str:
    """What ``panels`` draw, one below the other on a sheet of that height (inches), as SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        for place, panel in enumerate(panels, 1):
            axes = figure.add_subplot(len(panels), 1, place)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.6)
            panel(axes)
            axes.minorticks_off()
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=METADATA, transparent=True)
    return with_two_schemes(text.getvalue(), title)


def with_two_schemes(text: str, title: str) -> str:
    """The drawing with variables in place of colours, which follow the scheme of the page."""
    for colour, (name, _) in COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    light = " ".join(f"--{name}: {colour};" for colour, (name, _) in COLOURS.items())
    dark = " ".join(f"--{name}: {colour};" for name, colour in COLOURS.values())
    sheet = (
        f"<title>{title}</title>\n<style>\nsvg {{ {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}\n</style>\n"
    )
    head, found, rest = text.partition(" <defs>")
    return head + sheet + found + rest


def ticks(axis: Any) -> None:
    """1, 2, 5, 10, ... as 1k, 2k."""
    from matplotlib.ticker import EngFormatter, LogLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(EngFormatter(sep=""))


def style(label: str) -> dict[str, Any]:
    if label in STYLES:
        return STYLES[label]
    library = label.split()[0]
    return PEERS.get(library, OTHER)


def rates(measured: Measured, columns: dict[int, str], family: str) -> dict[str, list[tuple[int, float]]]:
    """Locks/s by the number of callers, for each implementation that was measured with many callers."""
    labels = dict.fromkeys(
        label for name, scenario in measured.items() if name.startswith(f"{family}-") for label in scenario
    )
    lines: dict[str, list[tuple[int, float]]] = {}
    for label in labels:
        if label.endswith("with hiredis"):
            continue  # its line is on that of the same library without
        for n, name in columns.items():
            rate = measured.get(name, {}).get(label, {}).get("locks/s")
            if rate:
                lines.setdefault(label, []).append((n, rate))
    return lines


PLOTS: dict[str, Callable[[Measured], str]] = {
    "overview": overview,
    "latency-of-one-caller": latency,
    "throughput-by-threads": functools.partial(throughput, columns=THREADS, unit="threads", family="threads"),
    "throughput-by-tasks": functools.partial(throughput, columns=TASKS, unit="tasks", family="tasks"),
    "grants-by-clients": contention,
}


def drawn(measured: Measured) -> dict[str, str]:
    """All plots that something was measured for, by the name of the file; none without matplotlib."""
    if not INSTALLED:
        return {}
    plots = {f"{name}.svg": draw(measured) for name, draw in PLOTS.items()}
    return {name: text for name, text in plots.items() if text}


def recorded() -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, dict[str, float]]] = json.loads(RECORD.read_text())
    return found


def record(measured: Measured) -> None:
    """Replace the scenarios of ``measured`` in the record, and draw all plots again."""
    RECORD.write_text(json.dumps({**recorded(), **measured}, indent=1) + "\n")
    for name, text in drawn(recorded()).items():
        (DOCS / name).write_text(text)


if __name__ == "__main__":
    if not INSTALLED:
        sys.exit("matplotlib is missing: pip install -e '.[bench]'")
    record({})
