"""Icons of servers and declarations: where clients see them, and icons that are static files."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings as django_settings

import django_mcp as mcp
from django_mcp.protocol.revisions import REVISIONS
from tests.client import PREFIX
from tests.shop.models import Company

from .helpers import problem_ids, valid_catalog

ICON = mcp.Icon(static="admin/img/icon-yes.svg", sizes=["16x16", "any"], theme="dark")
SENT = {
    "src": "https://shop.example/static/admin/img/icon-yes.svg",
    "mimeType": "image/svg+xml", "sizes": ["16x16", "any"], "theme": "dark",
}  # fmt: skip
LISTS = {
    "tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}  # fmt: skip
OLD = {"2024-11-05", "2025-03-26", "2025-06-18"}  # revisions without icons


@pytest.fixture(autouse=True)
def static_files(settings):
    settings.DJANGO_MCP = {**django_settings.DJANGO_MCP, "URL": "https://shop.example"}
    settings.INSTALLED_APPS = [*django_settings.INSTALLED_APPS, "django.contrib.staticfiles"]
    settings.STATIC_URL = "/static/"


@pytest.fixture
def decorated(server):
    server.icons = [ICON]

    class Companies(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = search_fields = group_fields = ["name"]
        ordering = ["name"]
        operations = ["update"]
        operation_permissions = {"update": mcp.AUTHENTICATED}
        listed = True
        icons = [ICON]

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    server.register(Company, Companies)

    @server.tool(icons=[ICON])
    def tool(request: mcp.Request) -> str:
        return ""

    @server.prompt(icons=[ICON])
    def prompt(request: mcp.Request) -> str:
        return ""

    @server.resource("shop://a", icons=[ICON])
    def resource(request: mcp.Request) -> str:
        return ""

    @server.resource("shop://b/{name}", icons=[ICON])
    def template(request: mcp.Request, name: str) -> str:
        return ""

    valid_catalog(server)
    return server


@pytest.mark.django_db
@pytest.mark.parametrize("revision", REVISIONS)
def test_icons_are_everywhere_in_revisions_that_have_them(connect, decorated, alice, revision):
    Company.objects.create(name="Books & Co")
    client = connect(alice, server=decorated, revision=revision, initialize=False)
    found: list[dict[str, Any]] = []
    if REVISIONS[revision].handshake:
        found.append(client.initialize()["serverInfo"])
    else:
        found.append(client.request("server/discover")["_meta"][PREFIX + "serverInfo"])
    for method, member in LISTS.items():
        entries = client.request(method)[member]
        assert len(entries) > 1 or method == "prompts/list"
        found += entries
    icons = [None if revision in OLD else [SENT]] * len(found)
    assert [entry.get("icons") for entry in found] == icons


def test_results_name_the_server_without_its_icons(connect, decorated, alice):
    """The newest revision names the server in every result, where pictures would be repeated."""
    info = connect(alice, server=decorated).call("tool")["_meta"][PREFIX + "serverInfo"]
    assert info == {"name": decorated.public_name, "version": "1.0"}


def test_static_icon_may_be_on_another_host(settings):
    settings.STATIC_URL = "https://static.example/files/"
    assert ICON.url == "https://static.example/files/admin/img/icon-yes.svg"


def test_static_icon_that_is_not_in_the_manifest_is_left_out(server, settings, connect, alice):
    server.icons = [mcp.Icon(static="shop/none.png"), mcp.Icon("data:image/png;base64,AA==")]
    server.tool(name="tool", icons=[mcp.Icon(static="shop/none.png")])(lambda request: "")
    assert problem_ids(server) == ["W300", "W300"]
    manifest = "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"
    settings.STORAGES = {"staticfiles": {"BACKEND": manifest, "OPTIONS": {"location": "/nowhere"}}}
    settings.DEBUG = False
    client = connect(alice, server=server)
    (tool,) = client.request("tools/list")["tools"]
    assert "icons" not in tool
    info = client.request("server/discover")["_meta"][PREFIX + "serverInfo"]
    assert info["icons"] == [{"src": "data:image/png;base64,AA=="}]
