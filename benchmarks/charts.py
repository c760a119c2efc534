"""
Line charts as SVG: one or more panels above each other, which share the axis at the bottom.

A chart has light and dark colours, as the reader's system prefers, and a text alternative. The
vertical axis begins at 0, unless it is logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tools import ROOT
from tools.flows import DARK, LIGHT, styled

IMAGES = ROOT / "docs" / "images"
WIDTH, LEFT, RIGHT, TOP = 760, 76, 44, 44
GAP, BOTTOM = 40, 54  # between panels, and below the last one
SIZE = 13  # of letters
MOST_TICKS = 6
COLOURS = (("#0969da", "#4493f8"), ("#bc4c00", "#db6d28"), ("#1a7f37", "#3fb950"))
UNITS = ((1e9, " billion"), (1e6, " million"))

Point = tuple[float, float]


@dataclass(frozen=True)
class Panel:
    """The vertical axis, and the lines drawn in it by their names."""

    label: str
    lines: Mapping[str, Sequence[Point]]
    is_log: bool = False
    height: int = 220


@dataclass(frozen=True)
class Axis:
    """A scale from values to pixels."""

    ticks: Sequence[float]
    start: int
    end: int
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self._place(self.ticks[0]), self._place(self.ticks[-1])
        share = (self._place(value) - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 1)

    def _place(self, value: float) -> float:
        return math.log10(value) if self.is_log else value


def write(name: str, text: str) -> Path:
    """Store a chart among the images of the documentation, and return its path."""
    path = IMAGES / f"{name}.svg"
    path.write_text(text, "utf-8")
    return path


def drawn(title: str, about: str, x_label: str, panels: Sequence[Panel], is_log: bool) -> str:
    """Return the chart. `is_log` is whether the horizontal axis is logarithmic."""
    xs = [x for panel in panels for line in panel.lines.values() for x, _ in line]
    x_axis = Axis(ticks(xs, is_log), LEFT, WIDTH - RIGHT, is_log)
    body: list[str] = []
    top = TOP
    for panel in panels:
        body += panel_shapes(panel, x_axis, top, is_last=panel is panels[-1])
        top += panel.height + GAP
    height = top - GAP + BOTTOM
    body.append(text(WIDTH // 2, height - 12, x_label, "quiet"))
    return "\n".join([*opening(title, about, height), *body, "</svg>", ""])


def ticks(values: Sequence[float], is_log: bool) -> list[float]:
    """Return round numbers, the first and the last of which enclose the values."""
    if is_log:
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return [10.0**power for power in range(low, max(high, low + 1) + 1)]
    highest = max(*values, 1e-9)
    power = 10.0 ** math.floor(math.log10(highest / MOST_TICKS))
    step = next(power * n for n in (1, 2, 5, 10) if highest / (power * n) <= MOST_TICKS)
    return [number * step for number in range(math.ceil(highest / step) + 1)]


def panel_shapes(panel: Panel, x_axis: Axis, top: int, is_last: bool) -> Iterator[str]:
    bottom = top + panel.height
    values = [y for line in panel.lines.values() for _, y in line]
    y_axis = Axis(ticks(values, panel.is_log), bottom, top, panel.is_log)
    for tick in y_axis.ticks:
        y = y_axis(tick)
        yield f'<path class="line" d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke-opacity=".35"/>'
        yield text(LEFT - 8, y + 4, number(tick), "quiet", "end")
    for tick in x_axis.ticks:
        x = x_axis(tick)
        yield f'<path class="line" d="M{x} {bottom}v5"/>'
        if is_last:
            yield text(x, bottom + 20, number(tick), "quiet")
    yield f'<path class="line" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>'
    yield text(LEFT, top - 14, panel.label, "ink", "start")
    yield from legend(panel, top - 14)
    for place, line in enumerate(panel.lines.values()):
        points = " ".join(f"{x_axis(x)},{y_axis(y)}" for x, y in line)
        yield f'<polyline class="line{place}" points="{points}"/>'
        if x_axis.is_log:
            for x, y in line:
                yield f'<circle class="dot{place}" cx="{x_axis(x)}" cy="{y_axis(y)}" r="3.5"/>'


def legend(panel: Panel, y: int) -> Iterator[str]:
    """Yield the names of the lines, from right to left, if there are several."""
    x = WIDTH - RIGHT
    if len(panel.lines) > 1:
        for place, name in reversed(list(enumerate(panel.lines))):
            yield text(x, y, name, f"dot{place}", "end")
            x -= int(len(name) * SIZE * 0.55) + 20


def text(x: float, y: float, words: str, look: str, anchor: str = "middle") -> str:
    return f'<text class="{look}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'


def number(value: float) -> str:
    """Return 2000 as 2,000, and 2000000 as 2 million."""
    for size, word in UNITS:
        if value >= size:
            return f"{value / size:g}{word}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def opening(title: str, about: str, height: int) -> Iterator[str]:
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="t d">'
    yield f'<title id="t">{escape(title)}</title>'
    yield f'<desc id="d">{escape(about)}</desc>'
    font = f"text{{font:{SIZE}px Helvetica,Arial,sans-serif}}polyline{{fill:none;stroke-width:2}}"
    light = styled(LIGHT | coloured([pair[0] for pair in COLOURS]))
    dark = styled(DARK | coloured([pair[1] for pair in COLOURS]))
    yield f"<style>{font}{light}@media (prefers-color-scheme:dark){{{dark}}}</style>"
    yield f'<rect class="paper" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>'


def coloured(colours: Sequence[str]) -> dict[str, str]:
    lines = {f"line{place}": f"stroke:{colour}" for place, colour in enumerate(colours)}
    return lines | {f"dot{place}": f"fill:{colour}" for place, colour in enumerate(colours)}
