"""The page on full-text search: its declaration can be served.

``tests/declarations/test_full_text_search.py`` runs the migrations of the page.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.db import models
from django.test.utils import isolate_apps

from django_mcp.declarations import server as servers
from django_mcp.declarations.fields.search_methods import FullTextSearch, vector_problems

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/full-text-search.md"


@pytest.mark.django_db
def test_declaration_of_the_page_can_be_served(monkeypatch, server):
    monkeypatch.setattr(servers, "default_server", server)
    code, *_ = blocks(PAGE, "python")
    namespace: dict[str, Any] = {"__name__": "tests.shop.shown", "__package__": "tests.shop"}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    assert [str(message) for message in server.check()] == []
    assert list(server._catalog.tools) == ["search_article"]


@isolate_apps("tests.shop")
def test_vector_field_of_the_page_is_correct():
    _, code, named, *_ = blocks(PAGE, "python")
    namespace: dict[str, Any] = {"__name__": "tests.shop.models", "mcp": __import__("django_mcp")}
    exec(compile(code + "\n" + named, str(PAGE), "exec", dont_inherit=True), namespace)
    model, declared = namespace["Article"], namespace["full_text_search"]
    assert issubclass(model, models.Model) and isinstance(declared, FullTextSearch)
    assert list(vector_problems(model, ["title", "body"], declared)) == []
    assert list(vector_problems(model, ["title"], declared)) != []
