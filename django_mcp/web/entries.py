"""
What a visitor may use, in words: an entry for each tool, resource and prompt.

Rule: an entry says what a client is told that uses the thing, by lists and by results; it
is made of declared text, which the template escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext, gettext_lazy

from ..declare.contents import Icon
from ..declare.declarations import Declaration
from ..declare.model_resources import ModelResource
from ..declare.resources import Resource
from ..declare.tools import Tool
from ..declare.words import Line, lines
from ..dispatch.usable import Usable

# A line that goes on: not one before a blank line, an indented one or an item of a list.
WRAPPED = re.compile(r"(?<!\n)\n(?![\s*•-]|\d+[.)])")
OWN = ("_uri", "_links")  # what every row has, beside its fields

HINTS = {"idempotent": gettext_lazy("safe to repeat"), "open_world": gettext_lazy("reaches out")}
NEEDS = {
    "elicitation": gettext_lazy("asks you"),
    "sampling": gettext_lazy("borrows your model"),
    "roots": gettext_lazy("looks at your folders"),
}


@dataclass(frozen=True)
class Entry:
    """One thing as the page shows it. ``takes`` and ``gives`` are its arguments and results."""

    anchor: str
    name: str
    title: str
    summary: str
    more: str = ""
    icon: Icon | None = None
    address: str = ""
    effect: str = ""  # "reads", "writes" or "destroys"
    notes: Sequence[str] = ()
    takes: Sequence[Line] = ()
    gives: Sequence[Line] = ()

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to tell beyond its summary."""
        return not (self.more or self.takes or self.gives)


@dataclass(frozen=True)
class Section:
    """Entries of one kind."""

    anchor: str
    title: str
    about: str
    entries: list[Entry] = field(default_factory=list)


def sections(usable: Usable) -> list[Section]:
    """Everything in ``usable``, by kind; kinds of which there is nothing are left out."""
    found = (
        Section("tools", gettext("Tools"), gettext("What an assistant may do here."),
                [_tool(one) for one in usable.tools]),
        Section("resources", gettext("Resources"), gettext("What it may read."),
                [_resource(one) for one in (*usable.resources, *usable.templates)]),
        Section("prompts", gettext("Prompts"), gettext("Conversations that you may begin."),
                [_of(one, takes=lines(one.arguments.schema)) for one in usable.prompts]),
    )  # fmt: skip
    return [section for section in found if section.entries]


def _tool(tool: Tool) -> Entry:
    effect = "destroys" if tool.destructive else "reads" if tool.read_only else "writes"
    hints = [str(words) for name, words in HINTS.items() if getattr(tool, name)]
    return _of(
        tool,
        effect=effect,
        notes=list(dict.fromkeys([*hints, *_needs(tool)])),
        takes=lines(tool.arguments.schema),
        gives=lines(tool.output.schema or {}),
    )


def _resource(resource: Resource) -> Entry:
    gives: list[Line] = []
    if isinstance(resource, ModelResource):
        shown = lines(resource.row_schema())
        gives = [line for line in shown if line.name.split(".")[0] not in OWN]
    notes = [resource.mime_type] if resource.mime_type else []
    takes = lines(resource.arguments.schema)
    return _of(resource, address=resource.uri, notes=notes, takes=takes, gives=gives)


def _needs(thing: Declaration) -> Iterator[str]:
    for need in thing.needs:
        yield str(NEEDS.get(need.partition(".")[0], need))


def _of(thing: Declaration, **more: Any) -> Entry:
    summary, _, rest = paragraphs(thing.description).partition("\n\n")
    return Entry(
        anchor=f"{thing.kind.replace(' ', '-')}-{thing.name}",
        name=thing.name,
        title=str(thing.title or ""),
        summary=summary,
        more=rest,
        icon=icon(thing.icons),
        **more,
    )


def paragraphs(text: Any) -> str:
    """Text as it was meant: lines that were wrapped where they were written go on."""
    return WRAPPED.sub(" ", str(text or "").strip())


def icon(icons: Iterable[Icon], theme: str = "light") -> Icon | None:
    """The first icon that is for ``theme``, or else for any."""
    fitting = [one for one in icons if one.theme in (None, theme)]
    return next(iter(fitting), None)
