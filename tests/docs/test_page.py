"""The page about the page: its code runs, and its pictures are of it."""

from __future__ import annotations

import pytest

import django_mcp as mcp
from tests.http import Site

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/page.md"
WORDS = ("_public_name", "version", "title", "description", "website", "icons", "page")


@pytest.mark.django_db
def test_what_it_says_of_a_server_is_shown(monkeypatch):
    for word in WORDS:
        monkeypatch.setattr(mcp.server, word, getattr(mcp.server, word))
    about, permission = blocks(PAGE, "python")
    exec(about, {})
    with Site(strict=False) as site:
        html = site.send("GET", "/mcp", headers={"accept": "text/html"}).body.decode()
        assert "<h1>The bookshop</h1>" in html and "Find books, and order them." in html
        assert 'href="https://books.example"' in html and "/static/book.svg" in html
        exec(permission, {"mcp": mcp})
        assert site.send("GET", "/mcp", headers={"accept": "text/html"}).status == 403


def test_its_pictures_are_those_that_the_tests_take():
    from tests.browser.test_page import LOOKS

    assert {f"../images/{name}.png" in PAGE.read_text("utf-8") for name in LOOKS} == {True}
