"""The page on connecting lists every client with its files."""

from __future__ import annotations

from django_mcp.web.clients import CLIENTS

from .pages import ROOT, text

PAGE = ROOT / "docs/how-to/connecting.md"


def test_every_client_is_in_the_table_with_its_files():
    rows = [line.split("|")[1:-1] for line in text(PAGE).splitlines() if line.startswith("| ")][1:]
    told = {
        called.strip().strip("`"): (name.strip(), own, shared) for name, called, own, shared in rows
    }
    assert [*told] == [one.key for one in CLIENTS]
    for one in CLIENTS:
        name, own, shared = told[one.key]
        assert name == one.name
        assert shared.strip().strip("`") == ((one.file and one.file.project) or "")
        place = one.file.path(platform="linux") if one.file else None
        assert place is None or place.name in own
