"""What clients are told is the setting's, not a header's."""

from __future__ import annotations

import pytest
from django.urls import set_script_prefix

from django_mcp.declarations.server import address, default_server, sse_address


@pytest.mark.parametrize(
    ("url", "prefix", "expected"),
    [
        ("https://shop.example", "/", "https://shop.example/mcp"),
        ("https://shop.example/", "/", "https://shop.example/mcp"),
        ("http://127.0.0.1:8000", "/below/", "http://127.0.0.1:8000/below/mcp"),
        ("https://shop.example", "/a b/", "https://shop.example/a%20b/mcp"),
    ],
)
def test_it_is_below_the_public_origin(settings, url, prefix, expected):
    settings.DJANGO_MCP = {"URL": url}
    set_script_prefix(prefix)
    try:
        assert address(default_server) == expected
    finally:
        set_script_prefix("/")


def test_where_http_sse_is_if_it_is_on(monkeypatch, settings):
    settings.DJANGO_MCP = {"URL": "https://shop.example"}
    assert sse_address(default_server) is None
    monkeypatch.setattr(default_server, "sse", True)
    assert sse_address(default_server) == "https://shop.example/mcp/sse"
