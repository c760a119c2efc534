"""`python -m tools flows`: draw the message flows of `docs/flows` as pictures for `docs/images`.

A flow is a text file in the format below. The picture has light and dark colours, as the reader's
system prefers, and a text alternative.

    title: What it is called
    about: The text alternative of the picture.
    client = Client
    a = Worker A

    client -> a: a message
    a -x client: a message that is lost
    a: what is done there
    a ends: why its line ends
    ...: what holds from here on
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.sax.saxutils import escape

from tools import ROOT

SOURCES, PICTURES = ROOT / "docs" / "flows", ROOT / "docs" / "images"
WIDTH, SIDE, TOP, LINE, GAP = 760, 88, 62, 17, 13
HEAD, NOTE, PAD = 136, 158, 7  # widths of boxes, and the space within them
SIZE, WIDE, NARROW = 13, 8.0, 4.6  # of letters, as the widest of the usual fonts has them
HEADING = re.compile(r"(title|about): (.+)")
LIFELINE = re.compile(r"(\w+) = (.+)")
STEP = re.compile(r"(\w+|\.\.\.)(?: (->|-x) (\w+)| (ends))?: (.+)")

LIGHT = {
    "paper": "fill:#ffffff;stroke:#d1d9e0", "ink": "fill:#1f2328", "quiet": "fill:#59636e",
    "line": "stroke:#818b98", "go": "stroke:#0969da", "tip": "fill:#0969da",
    "bad": "stroke:#cf222e", "box": "fill:#f6f8fa;stroke:#d1d9e0", "halo": "stroke:#ffffff",
}  # fmt: skip
DARK = {
    "paper": "fill:#0d1117;stroke:#3d444d", "ink": "fill:#f0f6fc", "quiet": "fill:#9198a1",
    "line": "stroke:#656c76", "go": "stroke:#4493f8", "tip": "fill:#4493f8",
    "bad": "stroke:#f85149", "box": "fill:#1c2128;stroke:#3d444d", "halo": "stroke:#0d1117",
}  # fmt: skip
FONT = f"font:{SIZE}px Helvetica,Arial,sans-serif;text-anchor:middle"
SHAPE = ".halo{stroke-width:5px;stroke-linejoin:round;paint-order:stroke}.strong{font-weight:bold}"


class Step(NamedTuple):
    """One line of a flow. ``...`` belongs to no participant."""

    at: str
    kind: str
    to: str
    text: str


@dataclass
class Flow:
    title: str = ""
    about: str = ""
    lifelines: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def x(self, name: str) -> int:
        """Where a lifeline is."""
        number = list(self.lifelines).index(name)
        return SIDE + number * (WIDTH - 2 * SIDE) // (len(self.lifelines) - 1)


def main(arguments: list[str]) -> int:
    for source in sorted(SOURCES.glob("*.txt")):
        picture = PICTURES / f"flow-{source.stem}.svg"
        picture.write_text(drawn(read(source.read_text("utf-8"))), "utf-8")
        print(picture)
    return 0


# Reading.


def read(text: str) -> Flow:
    """Raises ``ValueError`` with the line that cannot be read."""
    flow = Flow()
    for line in filter(None, map(str.strip, text.splitlines())):
        if found := HEADING.fullmatch(line):
            setattr(flow, *found.groups())
        elif found := LIFELINE.fullmatch(line):
            flow.lifelines[found[1]] = found[2]
        else:
            flow.steps.append(step(line, flow))
    return flow


def step(line: str, flow: Flow) -> Step:
    found = STEP.fullmatch(line)
    names = {found[1], found[3] or found[1]} if found else {""}
    if found is None or not names <= {*flow.lifelines, "..."}:
        raise ValueError(f"No step of a flow: {line}")
    at, arrow, to, ends, text = found.groups()
    kind = "..." if at == "..." else arrow or ends or "note"
    return Step(at, kind, to or at, text)


# Drawing.


def drawn(flow: Flow) -> str:
    body, ends, y = [], {}, TOP
    for one in flow.steps:
        shapes, y = DRAWN[one.kind](flow, one, y)
        body += shapes
        if one.kind == "ends":
            ends[one.at] = y - GAP
        y += GAP
    lines = [lifeline(flow, name, ends.get(name, y)) for name in flow.lifelines]
    heads = [shape for name, title in flow.lifelines.items() for shape in head(flow, name, title)]
    return "\n".join([*opening(flow, y + GAP), *lines, *heads, *body, "</svg>", ""])


def opening(flow: Flow, height: int) -> Iterator[str]:
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="t d">'
    yield f'<title id="t">{escape(flow.title)}</title>'
    yield f'<desc id="d">{escape(flow.about)}</desc>'
    dark = f"@media (prefers-color-scheme:dark){{{styled(DARK)}}}"
    yield f"<style>text{{{FONT}}}{SHAPE}{styled(LIGHT)}{dark}</style>"
    yield f'<rect class="paper" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>'


def styled(looks: dict[str, str]) -> str:
    return "".join(f".{name}{{{look}}}" for name, look in looks.items())


def head(flow: Flow, name: str, title: str) -> Iterator[str]:
    x = flow.x(name)
    yield f'<rect class="box" x="{x - HEAD // 2}" y="14" width="{HEAD}" height="28" rx="4"/>'
    yield f'<text class="ink strong" x="{x}" y="33">{escape(title)}</text>'


def lifeline(flow: Flow, name: str, end: int) -> str:
    return path("line", f"M{flow.x(name)} 42V{end}", 'stroke-dasharray="2 3"')


def arrow(flow: Flow, one: Step, y: int) -> tuple[list[str], int]:
    start, end = flow.x(one.at), flow.x(one.to)
    lines = wrapped(one.text, abs(end - start) - 24)
    y, lost, back = y + LINE * len(lines) + 4, one.kind == "-x", -1 if end < start else 1
    end = end - 30 * back if lost else end - back
    tip = f'<path class="tip" d="M{end} {y}l{-9 * back} -5v10z"/>'
    shapes = [
        *texts("ink halo", lines, (flow.x(one.at) + flow.x(one.to)) // 2, y - 7),
        path("bad" if lost else "go", f"M{start} {y}H{end if lost else end - 5 * back}"),
        cross(end, y) if lost else tip,
    ]
    return shapes, y


def note(flow: Flow, one: Step, y: int) -> tuple[list[str], int]:
    x, lines = flow.x(one.at), wrapped(one.text, NOTE - 2 * PAD)
    height = LINE * len(lines) + 2 * PAD
    box = f'<rect class="box" x="{x - NOTE // 2}" y="{y}" width="{NOTE}" height="{height}" rx="4"/>'
    return [box, *texts("ink", lines, x, y + height - PAD - 4)], y + height


def ending(flow: Flow, one: Step, y: int) -> tuple[list[str], int]:
    """A box with what ended it, and a cross below, where the line ends."""
    shapes, y = note(flow, one, y)
    x = flow.x(one.at)
    return [*shapes, path("line", f"M{x} {y}v12"), cross(x, y + 12)], y + GAP + 12


def divider(flow: Flow, one: Step, y: int) -> tuple[list[str], int]:
    lines = wrapped(one.text, WIDTH - SIDE)  # bold letters are wider
    rule = path("line", f"M12 {y + PAD}H{WIDTH - 12}")
    y += LINE * len(lines) + 2 * PAD
    return [rule, *texts("quiet halo strong", lines, WIDTH // 2, y - 2)], y


DRAWN = {"->": arrow, "-x": arrow, "note": note, "ends": ending, "...": divider}


def texts(kind: str, lines: list[str], x: int, last: int) -> list[str]:
    """Lines of text, the last of them at ``last``."""
    first = last - LINE * (len(lines) - 1)
    return [
        f'<text class="{kind}" x="{x}" y="{first + LINE * number}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]


def path(kind: str, d: str, more: str = 'stroke-width="1.5"') -> str:
    return f'<path class="{kind}" fill="none" {more} d="{d}"/>'


def cross(x: int, y: int) -> str:
    return path("bad", f"M{x - 6} {y - 6}l12 12m0 -12l-12 12", 'stroke-width="2"')


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines that are no wider, as far as words allow, and of about one length."""
    lines = filled(text, width)
    while width > 0 and len(closer := filled(text, width := width - 4)) == len(lines):
        lines = closer
    return lines


def filled(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and measured(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def measured(text: str) -> float:
    return sum(NARROW if one in " .,:;'!|ijlftrI()[]-" else WIDE for one in text)
