"""The page on startmcp shows the generated file."""

from __future__ import annotations

from django.apps import apps

from django_mcp.management.starter_file import generate_starter_file

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/starting.md"


def test_page_shows_the_file_generated_for_the_shop(server):
    (shown,) = blocks(PAGE, "python")
    written = generate_starter_file(apps.get_app_config("shop")).text
    first = "\n".join(line for line in shown.splitlines() if "#" not in line or "Not shown" in line)
    start = first.index("@mcp.register(Invoice)")
    assert first[start:].strip() in written
    explained = shown[shown.index("    # Users with Django") :].strip()
    assert explained in written


def test_shown_file_can_be_served(server):
    (shown,) = blocks(PAGE, "python")
    alone = shown.replace("from .", "from tests.shop.").replace("mcp.register(", "server.register(")
    exec(alone, {"server": server})
    assert server.check() == []
