"""The page on the server page: its code runs, and its images are the tested screenshots."""

from __future__ import annotations

import pytest

import django_mcp as mcp
from tests.http import Site

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/page.md"
ATTRIBUTES = ("_public_name", "version", "title", "description", "website", "icons", "page")


@pytest.mark.django_db
def test_declared_attributes_are_shown(monkeypatch):
    for word in ATTRIBUTES:
        monkeypatch.setattr(mcp.server, word, getattr(mcp.server, word))
    about, permission = blocks(PAGE, "python")
    exec(about, {})
    with Site(strict=False) as site:
        html = site.send("GET", "/mcp", headers={"accept": "text/html"}).body.decode()
        assert "<h1>The bookshop</h1>" in html and "Find books, and order them." in html
        assert 'href="https://books.example"' in html and "/static/book.svg" in html
        exec(permission, {"mcp": mcp})
        assert site.send("GET", "/mcp", headers={"accept": "text/html"}).status == 403


def test_images_are_the_screenshots_of_the_tests():
    from tests.browser.test_page import LOOKS

    assert {f"../images/{name}.png" in PAGE.read_text("utf-8") for name in LOOKS} == {True}
