"""A server advertises only capabilities that it offers."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from django.utils.translation import gettext_lazy, override

import django_mcp as mcp
from django_mcp.calls.methods import capabilities, server_info
from django_mcp.declarations import server as servers
from django_mcp.declarations.server import Server

LISTS = {"listChanged": True}


def tool(request: mcp.Request) -> str:
    return ""


def embedding(request: mcp.Request) -> mcp.EmbeddedResource:
    return mcp.EmbeddedResource("shop://x", "x")


def prompt(request: mcp.Request) -> str:
    return ""


def choosing(request: mcp.Request, tone: Literal["kind", "firm"]) -> str:
    return tone


def resource(request: mcp.Request) -> str:
    return ""


def template(request: mcp.Request, name: str) -> str:
    return name


def completing(request: mcp.Request, name: Annotated[str, mcp.Complete(["a"])]) -> str:
    return name


@pytest.mark.parametrize(
    "declare, expected",
    [
        (lambda server: None, {}),
        (lambda server: server.tool(tool), {"tools": LISTS}),
        (
            lambda server: server.tool(embedding),
            {"tools": LISTS, "resources": LISTS | {"subscribe": True}},
        ),
        (lambda server: server.prompt(prompt), {"prompts": LISTS}),
        (lambda server: server.prompt(choosing), {"prompts": LISTS, "completions": {}}),
        (
            lambda server: server.resource("shop://x")(resource),
            {"resources": LISTS | {"subscribe": True}},
        ),
        (
            lambda server: server.resource("shop://{name}")(template),
            {"resources": LISTS | {"subscribe": True}},
        ),
        (
            lambda server: server.resource("shop://{name}")(completing),
            {"resources": LISTS | {"subscribe": True}, "completions": {}},
        ),
    ],
)
def test_capability_is_advertised_only_if_the_server_offers_it(server, declare, expected):
    declare(server)
    assert capabilities(server) == {"logging": {}} | expected


@pytest.fixture
def named():
    made = Server(
        "presented", title=gettext_lazy("Yes"), version="2.1", description="What it is for.",
        website="https://shop.example", icons=[mcp.Icon("https://shop.example/i.png")],
        experimental={"example.com/x": {"a": 1}}, extensions={"example.com/y": {}},
    )  # fmt: skip
    yield made
    servers._servers.pop("presented", None)


def test_server_info_contains_what_the_server_declares(named):
    with override("de"):
        info = server_info(named)
    assert info == {
        "name": "presented", "title": "Ja", "version": "2.1", "description": "What it is for.",
        "websiteUrl": "https://shop.example", "icons": [{"src": "https://shop.example/i.png"}],
    }  # fmt: skip
    found = capabilities(named)
    assert found["experimental"] == {"example.com/x": {"a": 1}}
    assert found["extensions"] == {"example.com/y": {}}


def test_server_info_omits_what_the_server_does_not_declare(server):
    assert server_info(server) == {"name": server.public_name, "version": "1.0"}
