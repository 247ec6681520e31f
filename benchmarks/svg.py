"""Just enough SVG for a chart: a sheet with a title, logarithmic scales, lines and words.

Colours are classes, so that a dark page gets its own; the sheet brings its background along, since a
page's theme and the system's may differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

#: By name, for light and for dark pages.
COLOURS = {
    "sheet": ("#ffffff", "#12161d"),
    "ink": ("#1c2430", "#e6eaf0"),
    "faint": ("#66707f", "#98a3b3"),
    "grid": ("#e7eaef", "#262d38"),
    "native": ("#0b62d6", "#5aa2ff"),
    "second": ("#0e9a8a", "#3fd0bd"),
    "third": ("#7047d6", "#a98bff"),
    "own": ("#d9760a", "#ffae57"),
    "floor": ("#38424f", "#c3ccd8"),
    "peer": ("#a0a8b4", "#6f7b8b"),
}

FONT = "ui-sans-serif, system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"

Point = tuple[float, float]


class Scale:
    """Maps values from ``low`` to ``high`` to places from ``start`` to ``stop``, by their logarithms."""

    def __init__(self, low: float, high: float, start: float, stop: float) -> None:
        self.low, self.high = low, high
        self._start, self._stop = start, stop

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self._start + share * (self._stop - self._start)

    def ticks(self) -> list[float]:
        """1, 2, 5, 10, ...; only powers of ten where that would be too many."""
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = (1, 2, 5) if len(exponents) < 6 else (1,)
        values = [step * 10.0**exponent for exponent in exponents for step in steps]
        return [value for value in values if self.low <= value <= self.high * 1.0001]


class Sheet:
    """Collects shapes; ``text`` is the whole file."""

    def __init__(self, width: int, height: int, title: str, subtitle: str) -> None:
        self._size = width, height
        self._title = title
        self._shapes: list[str] = []
        self.write(24, 34, title, "title")
        self.write(24, 54, subtitle, "small faint")

    def write(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        self._shapes.append(f"<text {place} class={quoteattr(kind)}>{escape(text)}</text>")

    def line(self, points: Sequence[Point], kind: str) -> None:
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._shapes.append(f'<polyline points="{places}" class={quoteattr(kind)}/>')

    def area(self, points: Sequence[Point], kind: str) -> None:
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._shapes.append(f'<polygon points="{places}" class={quoteattr(kind)}/>')

    def dot(self, x: float, y: float, kind: str) -> None:
        self._shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" class={quoteattr(kind)}/>')

    @property
    def text(self) -> str:
        width, height = self._size
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                f'width="{width}" height="{height}" role="img" aria-label={quoteattr(self._title)}>',
                f"<style>{style()}</style>",
                f'<rect width="{width}" height="{height}" rx="10" class="sheet"/>',
                *self._shapes,
                "</svg>\n",
            )
        )


def style() -> str:
    """Shapes, colours for light, and the colours again for dark."""
    return (
        f"text {{ font-family: {FONT}; font-size: 13px }} .title {{ font-size: 17px; font-weight: 650 }} "
        ".small { font-size: 12px } .strong { font-weight: 650 } "
        "polyline { fill: none; stroke-width: 1.6; stroke-linejoin: round; stroke-linecap: round } "
        "polyline.wide { stroke-width: 2.8 } polyline.grid { stroke-width: 1 } "
        "polyline.dashed { stroke-dasharray: 5 4 } polygon { fill-opacity: 0.3 } "
        f"{coloured(0)} @media (prefers-color-scheme: dark) {{ {coloured(1)} }}"
    )


def coloured(which: int) -> str:
    """Plain colours: not every program that shows SVG knows variables."""
    rules = [f"text {{ fill: {COLOURS['ink'][which]} }}"]
    for name, pair in COLOURS.items():
        rules.append(f"polyline.{name} {{ stroke: {pair[which]} }}")
        rules.append(f"polygon.{name}, circle.{name}, rect.{name}, text.{name} {{ fill: {pair[which]} }}")
    return " ".join(rules)


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels, at least ``gap`` apart where there is room, near where they belong."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    at = low - gap
    for index in order:
        at = moved[index] = max(places[index], at + gap)
    at = high + gap
    for index in reversed(order):
        at = moved[index] = min(moved[index], at - gap)
    return moved


def short(value: float) -> str:
    """1500 as 1.5k."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
