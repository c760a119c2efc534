"""Entries of the server page: descriptions, arguments, fields, notes and icons."""

from __future__ import annotations

import pytest

import django_mcp as mcp
from django_mcp.calls.listing import Usable
from django_mcp.declarations.server import default_server
from django_mcp.web.page import icon, paragraphs, sections


def entries_of(server):
    catalog = server.ready()
    kinds = ("tools", "resources", "templates", "prompts")
    found = sections(Usable(**{kind: [*getattr(catalog, kind).values()] for kind in kinds}))
    return {entry.anchor: entry for section in found for entry in section.entries}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (None, ""), ("", ""), ("  One.  ", "One."), ("One\nline.", "One line."),
        ("One.\n\nTwo.", "One.\n\nTwo."), ("Any of:\n- a\n- b", "Any of:\n- a\n- b"),
        ("Any of:\n* a\n  more", "Any of:\n* a\n  more"), ("Do:\n1. a\n2) b", "Do:\n1. a\n2) b"),
        ("In\n2026 it was", "In 2026 it was"), ("Any of:\n\u2022 a", "Any of:\n\u2022 a"),
    ],
)  # fmt: skip
def test_wrapped_lines_are_joined_into_paragraphs(written, read):
    assert paragraphs(written) == read


def test_tool_entry_shows_its_hints_and_needs(server):
    for name, hints in {
        "look": {"read_only": True}, "write": {}, "wipe": {"destructive": True},
    }.items():  # fmt: skip

        def tool(request: mcp.Request) -> None:
            """Do it."""

        server.tool(permission=mcp.PUBLIC, name=name, **hints)(tool)

    @server.register
    class Talk(mcp.Tool):
        """Talk."""

        read_only = idempotent = open_world = True
        needs = ("sampling.tools", "sampling", "elicitation", "extensions.com.example/ui")

        def handle(self, request: mcp.Request) -> None: ...

    found = entries_of(server)
    assert [found[f"tool-{name}"].effect for name in ("look", "write", "wipe", "talk")] == [
        "reads", "writes", "destroys", "reads",
    ]  # fmt: skip
    assert found["tool-talk"].notes == [
        "safe to repeat", "contacts other systems", "uses your language model", "asks you",
        "extensions.com.example/ui",
    ]  # fmt: skip
    assert found["tool-look"].is_plain and found["tool-look"].summary == "Do it."


def test_first_paragraph_is_the_summary(server):
    @server.prompt
    def write(request: mcp.Request, tone: str = "kind") -> str:
        """Write
        something.

        Gladly.

        Args:
            tone: How.
        """
        return ""

    entry = entries_of(server)["prompt-write"]
    assert (entry.summary, entry.more) == ("Write something.", "Gladly.")
    (line,) = entry.takes
    assert (line.name, line.type, line.description, line.default) == (
        "tone",
        "text",
        "How.",
        "kind",
    )


def test_resource_entry_shows_its_fields():
    entry = entries_of(default_server)["model-resource-invoice"]
    assert entry.address == "invoice://{number}" and entry.notes == ["application/json"]
    names = [line.name for line in entry.gives]
    assert {"number", "customer", "total"} <= set(names)
    assert not [name for name in names if name.startswith("_")]


def test_tool_entry_shows_arguments_and_results():
    entry = entries_of(default_server)["tool-refund"]
    assert not entry.is_plain
    assert [line.name for line in entry.takes] == ["invoice", "reason", "amount"]
    assert [line.name for line in entry.gives] == ["number", "amount", "reason"]


def test_empty_sections_are_omitted(server):
    @server.resource("policy://terms", mime_type="text/plain")
    def terms(request: mcp.Request) -> str:
        return ""

    catalog = server.ready()
    (section,) = sections(Usable(resources=list(catalog.resources.values())))
    assert section.anchor == "resources"
    (entry,) = section.entries
    assert (entry.anchor, entry.notes, entry.is_plain) == ("resource-terms", ["text/plain"], True)


def test_icon_is_chosen_by_theme():
    dark, any_, light = (
        mcp.Icon(f"data:,{theme}", theme=theme) for theme in ("dark", None, "light")
    )
    assert icon([dark, light]) is light and icon([dark, light], "dark") is dark
    assert icon([any_, light]) is any_ and icon([any_], "dark") is any_
    assert icon([light], "dark") is None and icon([]) is None
