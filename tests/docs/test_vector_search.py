"""The page on vector search: its model and its declaration have no check errors.

``tests/fields/test_vectors.py`` searches with pgvector.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from django.test.utils import isolate_apps

import django_mcp as mcp
from django_mcp.declarations import server as servers

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/vector-search.md"


def run(code: str, **names: Any) -> dict[str, Any]:
    namespace = {"__name__": "tests.shop.models", "__package__": "page", **names}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    return namespace


class SentenceTransformer:
    """Stands in for a package that downloads a language model."""

    def __init__(self, name: str) -> None:
        assert name == "all-MiniLM-L6-v2"

    def encode(self, text: str) -> list[float]:
        return [float(len(text))] * 384


@isolate_apps("tests.shop")
def test_code_of_the_page_declares_the_tool(monkeypatch, server):
    def add_module(name: str, **names: Any) -> None:
        module = ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)

    monkeypatch.setattr(servers, "default_server", server)
    model, declaration, embedding = blocks(PAGE, "python")
    add_module("page")
    add_module("sentence_transformers", SentenceTransformer=SentenceTransformer)
    article, embed = run(model)["Article"], run(embedding)["embed"]
    add_module("page.models", Article=article)
    add_module("page.embeddings", embed=embed)
    run(declaration)
    assert [str(message) for message in server.check()] == []
    (resource,) = server._catalog.models[article]
    assert resource.vector_search == mcp.VectorSearch("embedding", embed=embed)
    assert [*server._catalog.tools] == ["find_similar_article"]
    size = article._meta.get_field("embedding").dimensions
    assert len(embed("a text")) == size
