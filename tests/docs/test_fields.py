"""The page on model fields: its code runs, and the field tests register the same type."""

from __future__ import annotations

import json
from typing import Any

from django_mcp.declarations import server as servers
from django_mcp.declarations.fields import field_types

from .pages import ROOT, blocks

PAGE = ROOT / "docs/reference/fields.md"
CAMPAIGN = ROOT / "tests/fields/mcp.py"


def run(code: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "tests.shop.shown", "__package__": "tests.shop"}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    return namespace


def test_field_type_is_registered_as_shown(monkeypatch):
    monkeypatch.setattr(field_types, "_TYPES", {})
    code, *_ = blocks(PAGE, "python")
    made = run(code)["MultiSelectType"]
    assert list(field_types._TYPES.items()) == [
        ("multiselectfield.db.fields.MultiSelectField", made)
    ]
    assert CAMPAIGN.read_text(encoding="utf-8").endswith(code.partition("\n\n")[2])


def test_methods_are_shown_as_fields(monkeypatch, server, connect, alice, invoice):
    monkeypatch.setattr(servers, "default_server", server)
    _, code = blocks(PAGE, "python")
    run(code)
    invoice.tags.create(label="late")
    alice.is_superuser = True
    alice.save()
    client = connect(alice, server=server)
    uri = f"model://shop/invoice/{invoice.pk}"
    (contents,) = client.request("resources/read", uri=uri)["contents"]
    shown = json.loads(contents["text"])
    assert (shown["total_label"], shown["tag_labels"]) == (f"{invoice.total} EUR", ["late"])
