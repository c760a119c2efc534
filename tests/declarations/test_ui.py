"""Pages of tools: their resource, their metadata, who may read them, and what must be rejected."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal
from django_mcp.declarations.declaration import decide
from django_mcp.declarations.request import Request
from django_mcp.declarations.ui import EXTENSION, MIME_TYPE
from django_mcp.models import AuditEntry, Switch
from django_mcp.protocol.revisions import REVISIONS
from django_mcp.templatetags.mcp_ui import mcp_ui_script
from django_mcp.testing.results import RpcError

from .helpers import problem_ids, single_problem, valid_catalog

PAGE = "<!doctype html>\n<title>{{ tool.name }}</title>{{ request.user.username }}"
CAPABILITIES = {"extensions": {EXTENSION: {"mimeTypes": [MIME_TYPE]}}}
URI = "ui://a%20test%27s%20own/refund"
WITHOUT_META = {"2024-11-05", "2025-03-26"}  # revisions whose definitions have no ``_meta``


@dataclass
class Refund:
    number: str
    total: int


def refund(request: mcp.Request, number: str) -> Refund:
    return Refund(number, 5)


@pytest.fixture
def template(settings, tmp_path):
    """Return a function that writes a template and returns its name."""

    def made(text, **options):
        (tmp_path / "card.html").write_text(text, "utf-8")
        engine = settings.TEMPLATES[0]
        options = engine["OPTIONS"] | options
        settings.TEMPLATES = [engine | {"DIRS": [tmp_path], "OPTIONS": options}]
        return "card.html"

    return made


@pytest.mark.parametrize("capabilities", [{}, CAPABILITIES], ids=["plain", "with apps"])
@pytest.mark.parametrize("revision", REVISIONS)
def test_tool_names_its_page_and_keeps_its_result(
    connect, server, template, alice, revision, capabilities
):
    ui = mcp.UI(
        template(PAGE),
        connect_domains=["wss://live.example:8443"],
        resource_domains=["https://*.cdn.example"],
        browser_permissions=["clipboard_write"],
        domain="a1.apps.example",
        prefers_border=False,
    )
    server.tool(ui=ui, meta={"com.example/a": 1})(refund)
    client = connect(alice, server=server, revision=revision, capabilities=capabilities)
    (tool,) = client.request("tools/list")["tools"]
    (page,) = client.request("resources/read", uri=URI)["contents"]
    assert (page["uri"], page["mimeType"]) == (URI, MIME_TYPE)
    assert page["text"] == "<!doctype html>\n<title>refund</title>alice"
    assert client.request("resources/list")["resources"] == []
    assert client.call("refund", number="A-1")["content"] == [
        {"type": "text", "text": '{"number": "A-1", "total": 5}'}
    ]
    if revision in WITHOUT_META:  # the client's default policy allows no other host
        assert "_meta" not in tool and "_meta" not in page
        return
    assert tool["_meta"] == {"com.example/a": 1, "ui": {"resourceUri": URI}}
    assert page["_meta"] == {
        "ui": {
            "csp": {
                "connectDomains": ["wss://live.example:8443"],
                "resourceDomains": ["https://*.cdn.example"],
            },
            "permissions": {"clipboardWrite": {}},
            "domain": "a1.apps.example",
            "prefersBorder": False,
        }
    }


@pytest.mark.django_db
def test_extension_is_advertised_if_a_tool_has_a_page(connect, server, template):
    @server.tool(permission=mcp.PUBLIC)
    def plain(request: mcp.Request) -> bool:
        return request.can.ui

    assert "extensions" not in connect(server=server).request("server/discover")["capabilities"]
    assert connect(server=server).text("plain") == "false"
    assert connect(server=server, capabilities=CAPABILITIES).text("plain") == "true"
    server._forget()
    server.tool(ui=template(PAGE), permission=mcp.PUBLIC)(refund)
    found = connect(server=server).request("server/discover")["capabilities"]
    assert found["extensions"] == {EXTENSION: {}}


def test_tool_for_pages_only_says_so(server):
    server.tool(visibility=["app"])(refund)
    assert valid_catalog(server).tools["refund"]._definition()["_meta"] == {
        "ui": {"visibility": ["app"]}
    }


@pytest.mark.django_db
def test_page_needs_the_permission_of_its_tool(connect, server, template, alice, bob):
    server.tool(ui=template(PAGE), permission=lambda request: request.user == bob)(refund)
    assert connect(bob, server=server).request("resources/read", uri=URI)["contents"]
    with pytest.raises(RpcError) as hidden:
        connect(alice, server=server).request("resources/read", uri=URI)
    with pytest.raises(RpcError) as unknown:
        connect(alice, server=server).request("resources/read", uri=URI + "x")
    assert hidden.value.code == unknown.value.code
    assert hidden.value.message.replace(URI, "") == unknown.value.message.replace(URI + "x", "")


@pytest.mark.django_db
@pytest.mark.parametrize("audit", [True, False])
def test_page_follows_the_audit_of_its_tool(connect, server, template, alice, audit):
    server.audit = not audit
    server.tool(ui=template(PAGE), audit=audit)(refund)
    connect(alice, server=server).request("resources/read", uri=URI)
    assert AuditEntry.objects.exists() is audit


@pytest.mark.django_db
def test_limit_of_a_tool_does_not_count_reads_of_its_page(connect, server, template, alice):
    server.tool(ui=template(PAGE))(refund)
    Switch.objects.create(server=server.name, thing="tool:refund", rate="1/month")
    client = connect(alice, server=server)
    for _ in range(3):
        client.request("resources/read", uri=URI)
    assert not client.call("refund", number="1").get("isError")
    assert client.failure("refund", number="1").startswith("Too many calls")


def test_page_of_a_tool_that_is_switched_off_cannot_be_read(connect, server, template, alice):
    server.tool(ui=template(PAGE))(refund)
    Switch.objects.create(server=server.name, thing="tool:refund")
    with pytest.raises(RpcError, match="not found"):
        connect(alice, server=server).request("resources/read", uri=URI)


def test_page_needs_the_scope_of_its_tool(server, template, alice):
    server.tool(ui=template(PAGE), scope="refunds")(refund)
    page = valid_catalog(server).resources[URI]
    for scopes, allowed in ((["refunds"], True), (["resource:refund"], False)):
        principal = Principal(alice, Auth(scopes=scopes))
        assert decide(page, Request(principal, server)).allowed is allowed


def test_values_in_a_page_are_escaped_whatever_the_engine_says(connect, server, template, alice):
    alice.username = "<script>alert(1)</script>"
    server.tool(ui=template(PAGE, autoescape=False))(refund)
    (page,) = connect(alice, server=server).request("resources/read", uri=URI)["contents"]
    assert "<script>" not in page["text"] and "&lt;script&gt;" in page["text"]


@pytest.mark.parametrize(
    "origin",
    [
        "http://cdn.example", "cdn.example", "https://cdn.example/path", "https://cdn.example; x",
        "https://a.example https://b.example", "https://a.example\n", "'unsafe-eval'", "*",
        "https://*", "https://*.example", "https://a@cdn.example", "https://cdn.example:0", "data:",
        "https://localhost", 5,
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "name", ["connect_domains", "resource_domains", "frame_domains", "base_uri_domains"]
)
def test_only_https_origins_may_be_allowed(server, template, name, origin):
    server.tool(ui=mcp.UI(template(PAGE), **{name: ["https://good.example", origin]}))(refund)
    message = single_problem(server)
    assert message.id == "django_mcp.E303" and name in message.msg
    schemes = "https or wss" if name == "connect_domains" else "https"
    assert message.msg.endswith(f"{origin!r} is not an {schemes} origin.")


def test_string_instead_of_list_of_origins_is_reported_as_such(server, template):
    server.tool(ui=mcp.UI(template(PAGE), connect_domains="https://a.example"))(refund)
    expected = "connect_domains: 'https://a.example' is not a list."
    assert single_problem(server).msg.endswith(expected)


@pytest.mark.parametrize(
    ("values", "ids"),
    [
        ({"ui": 5}, ["E060"]),
        ({"visibility": "app"}, ["E060"]),
        ({"visibility": []}, ["E301"]),
        ({"visibility": ["app", "host"]}, ["E301"]),
        ({"visibility": ["app"], "meta": {"ui": {}}}, ["E302"]),
        ({"ui": mcp.UI("card.html", connect_domains="https://a.example")}, ["E303"]),
        ({"ui": mcp.UI("card.html", resource_domains=["wss://a.example"])}, ["E303"]),
        ({"ui": mcp.UI("card.html", browser_permissions=["usb"])}, ["E303"]),
        ({"ui": mcp.UI("card.html", domain="https://a.example")}, ["E303"]),
        ({"ui": mcp.UI("card.html", prefers_border="yes")}, ["E303"]),
        ({"ui": "missing.html"}, ["E304"]),
    ],
)
def test_wrong_values_are_errors(server, template, values, ids):
    template(PAGE)
    server.tool(**values)(refund)
    assert problem_ids(server) == ids


def test_script_does_not_end_its_element():
    script = mcp_ui_script()
    assert script.startswith("<script>") and script.count("</") == 1
    assert "<!--" not in script
