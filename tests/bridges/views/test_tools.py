"""Views as tools and resources: definitions, redirects, responses, permissions and checks."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from dataclasses import dataclass
from textwrap import dedent

import pytest
from django import forms
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.mixins import PermissionRequiredMixin
from django.http import HttpResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.generic import CreateView, DeleteView, DetailView, ListView
from pydantic import BaseModel

import django_mcp as mcp
from django_mcp.bridges.views import ViewTools
from django_mcp.bridges.views.urls import Pattern, Route
from django_mcp.bridges.views.view_tool import ViewTool
from django_mcp.conf import settings
from django_mcp.declarations.declaration import decide
from django_mcp.management.access_report import explain_read
from tests.client import RpcError
from tests.declarations.helpers import make_request, problem_ids, single_problem, valid_catalog
from tests.http import HttpClient
from tests.shop.models import Customer, Invoice, Tag

from .. import site

pytestmark = [pytest.mark.urls("tests.bridges.site"), pytest.mark.django_db]


@pytest.fixture(autouse=True)
def project(settings):
    settings.TEMPLATES = site.TEMPLATES
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "shop.example"]


@pytest.fixture
def views(server):
    """Return a function that registers views on the server of the test."""

    def registered(**attributes):
        made = type("SiteViews", (ViewTools,), attributes)
        server.register(made)
        return made

    return registered


@pytest.fixture
def visit(views, server, connect, alice):
    """Return a function that calls one view by its name, as alice or another user."""

    def visited(name, /, user=alice, *, post=False, attributes=None, **arguments):
        if not server._records:
            views(**{"post" if post else "get": [name]}, **(attributes or {}))
        tool = next(iter(server.ready().tools))
        return connect(user, server=server).call(tool, **arguments)

    return visited


def data(result):
    assert not result["isError"], result
    return result["structuredContent"]


def text(result):
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


def refusal_text(result):
    assert result["isError"], result
    assert "hunter2" not in json.dumps(result)
    return text(result)


# Tools.


def test_definitions_of_view_tools(views, server):
    views(get=["billing:list"], post=["billing:close", "billing:delete"])
    tools = valid_catalog(server).tools
    assert list(tools) == ["billing_list", "billing_close", "billing_delete"]
    listed, closes, deletes = (tool._definition() for tool in tools.values())
    assert (listed["title"], listed["description"]) == (
        "Billing list", "The invoices of your company.",
    )  # fmt: skip
    assert listed["annotations"] == {"readOnlyHint": True}
    assert closes["description"] == "Close an invoice."
    assert "annotations" not in closes
    assert deletes["annotations"] == {"destructiveHint": True}
    assert deletes["description"] == "Delete one invoice."


def test_descriptions_of_generic_views(views, server):
    views(
        get=["billing:edit", "billing:detail"],
        post=["billing:edit", "billing:new-customer", "seen"],
        resources=["billing:detail"],
    )
    catalog = valid_catalog(server)
    assert [tool.description for tool in catalog.tools.values()] == [
        "Show one invoice.", "Show one invoice.",
        "Change one invoice. Fields that are not given keep their value.", "Add one customer.",
        "What the view was given.",
    ]  # fmt: skip
    (page,) = catalog.templates.values()
    assert page.description == "Show one invoice."


def test_view_for_get_and_post_is_two_tools(views, server):
    views(get=["billing:edit"], post=["billing:edit"])
    assert list(valid_catalog(server).tools) == ["show_billing_edit", "billing_edit"]


def test_names_and_descriptions_can_be_set(views, server):
    views(post=["seen"], names={"seen": "look"}, descriptions={"seen": "Look."})
    tool = valid_catalog(server).tools["look"]
    assert tool._definition()["description"] == "Look."


def test_arguments_are_those_of_url_query_and_form(views, server):
    views(
        get=["billing:list"],
        post=["billing:close"],
        forms={"billing:close": site.CloseForm},
        query={"billing:list": site.InvoiceFilter},
    )
    listed, closes = (tool._arguments.schema for tool in valid_catalog(server).tools.values())
    assert list(listed["properties"]) == ["status", "page"]
    assert listed["additionalProperties"] is False
    assert list(closes["properties"]) == ["pk", "reason", "silent"]
    assert closes["required"] == ["pk", "reason"]


def test_unknown_argument_is_refused(visit):
    assert "nonsense" in refusal_text(visit("seen", nonsense=1))


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
def test_view_over_http_gets_user_and_public_host(views, server, settings, revision, alice):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {
        "VERIFIERS": ["tests.bridges.views.test_tools.Alice"]
    }
    views(get=["seen"])
    with HttpClient("alices", server=server, revision=revision) as client:
        assert data(client.call("seen")) == {
            "user": "alice", "signed_in": True, "method": "GET", "path": "/seen/",
            "full": "/seen/", "get": {}, "post": {}, "files": {}, "type": "",
            "secure": True, "host": "testserver", "session": str(alice.pk), "authorization": None,
            "language": "en-us", "mcp": "Request", "kwargs": {},
        }  # fmt: skip


class Alice:
    """A token verifier with one valid token."""

    async def verify(self, token, server):
        from django.contrib.auth.models import User

        assert token == "alices"
        return mcp.Principal(await User.objects.aget(username="alice"))


def test_query_and_form_are_encoded_as_by_a_browser(views, server, connect, alice):
    views(get=["seen"], query={"seen": site.InvoiceFilter})
    views(post=["text"], forms={"text": site.CloseForm})
    client = connect(alice, server=server)
    assert data(client.call("seen", status="open"))["get"] == {"status": ["open"]}
    posted = data(client.call("text", text="x", reason="a & b=ü", silent=True))
    assert posted["post"] == {"reason": ["a & b=ü"], "silent": ["on"]}
    assert (posted["method"], posted["type"], posted["kwargs"]) == (
        "POST", "application/x-www-form-urlencoded", {"text": "x"},
    )  # fmt: skip
    assert "silent" not in data(client.call("text", text="x", reason="r", silent=False))["post"]


def test_too_long_query_string_is_refused(views, server, connect, alice):
    """A client could make the server parse and log megabytes."""
    views(get=["seen"], query={"seen": Search})
    client = connect(alice, server=server)
    assert data(client.call("seen", text="x" * 1000))["get"]["text"] == ["x" * 1000]
    result = client.call("seen", text="ü" * 3000)  # six bytes each, when percent-encoded
    assert result["isError"] and "query string of 18012 bytes" in text(result)


@dataclass
class Search:
    text: str
    size: int = 1
    tags: list[str] | None = None


class Payload(BaseModel):
    name: str
    inner: dict[str, int]


def test_dataclass_is_a_query_and_pydantic_model_is_a_json_body(views, server, connect, alice):
    views(get=["seen"], query={"seen": Search})
    views(post=["body"], forms={"body": Payload})
    client = connect(alice, server=server)
    found = data(client.call("seen", text="a&b", tags=["x", "y"]))
    assert found["get"] == {"text": ["a&b"], "size": ["1"], "tags": ["x", "y"]}
    assert data(client.call("body", name="n", inner={"a": 1})) == {
        "type": "application/json", "body": {"name": "n", "inner": {"a": 1}},
    }  # fmt: skip
    assert "inner" in refusal_text(client.call("body", name="n", inner={"a": "x"}))


def test_paginated_list_is_read_page_by_page(visit, invoice):
    for number in ("A-2", "A-3"):
        Invoice.objects.create(
            company=invoice.company, customer=invoice.customer, number=number, total=1,
            issued=invoice.issued,
        )  # fmt: skip
    assert text(visit("billing:list")) == "# Invoices\n\n- A-1\n- A-2"
    assert text(visit("billing:list", page=2)) == "# Invoices\n\n- A-3"
    assert refusal_text(visit("billing:list", page=3))


class Upload(site.forms.Form):
    title = site.forms.CharField()
    file = site.forms.FileField()


def test_file_is_uploaded(visit):
    file = {"name": "a.txt", "data": base64.b64encode(b"hello").decode()}
    attributes = {"forms": {"seen": Upload}}
    found = data(visit("seen", post=True, title="t", file=file, attributes=attributes))
    assert (found["post"], found["files"]) == ({"title": ["t"]}, {"file": "hello"})
    assert found["type"] == "multipart/form-data"


def test_view_runs_inside_the_around_setting(visit, settings):
    around = {"AROUND": ["tests.bridges.middleware.in_german"]}
    settings.DJANGO_MCP = settings.DJANGO_MCP | around
    assert data(visit("seen"))["language"] == "de"


def test_asynchronous_view_can_use_the_orm(visit, invoice):
    assert data(visit("aseen")) == {"user": "alice", "customers": 1}


# Forms and redirects.


def test_invalid_form_is_an_error_for_each_field_and_saves_nothing(visit, invoice):
    forms = {"forms": {"billing:edit": None}}
    result = visit("billing:edit", post=True, pk=invoice.pk, total=-1, number="", attributes=forms)
    assert "number:" in refusal_text(result)
    invoice.refresh_from_db()
    assert invoice.number == "A-1"


def test_update_view_changes_only_given_fields(views, server, connect, alice, invoice):
    views(post=["billing:edit"], get=["billing:detail"])
    client = connect(alice, server=server)
    schema = server.ready().tools["billing_edit"]._arguments.schema
    assert (list(schema["properties"]), schema["required"]) == (
        ["pk", "number", "status", "total"], ["pk"],
    )  # fmt: skip
    result = client.call("billing_edit", pk=invoice.pk, total=99)
    assert not result["isError"], result
    assert text(result) == "The invoice was saved.\nA-1: 99.00"
    invoice.refresh_from_db()
    assert (invoice.number, invoice.status, invoice.total) == ("A-1", "open", 99)


def test_function_view_returns_its_message_and_the_redirected_page(
    views, server, connect, alice, invoice
):
    views(
        post=["billing:close"],
        resources=["billing:detail"],
        forms={"billing:close": site.CloseForm},
    )
    client = connect(alice, server=server)
    result = client.call("billing_close", pk=invoice.pk, reason="rain")
    assert text(result) == "Closed because rain.\nA-1: 12.50"
    invoice.refresh_from_db()
    assert invoice.status == "paid"


def test_redirect_to_an_unlisted_view_is_named_and_not_followed(visit, invoice):
    result = visit(
        "billing:close", post=True, pk=invoice.pk, reason="rain",
        attributes={"forms": {"billing:close": site.CloseForm}},
    )  # fmt: skip
    told = f"Done. It leads to https://shop.example/billing/{invoice.pk}/"
    assert text(result) == f"Closed because rain.\n{told}"


def test_invalid_form_of_a_function_view_is_an_error(visit, invoice):
    result = visit(
        "billing:close", post=True, pk=invoice.pk, reason="none",
        attributes={"forms": {"billing:close": site.CloseForm}},
    )  # fmt: skip
    assert "Say why." in refusal_text(result)


def test_redirect_to_another_site_is_a_resource_link(visit, alice):
    company = alice.companies.get()
    result = visit("billing:new-customer", post=True, company=company.pk, name="New")
    link = result["content"][-1]
    assert (link["type"], link["uri"]) == ("resource_link", "https://elsewhere.example/thanks?x=1")
    assert Customer.objects.filter(name="New").exists()


def test_prefix_of_the_views_form_is_used(visit):
    result = visit("form", post=True, reason="rain")
    assert "leads to" in text(result) and not result["isError"]
    assert "reason: " in refusal_text(visit("form", post=True, reason="none"))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("outside", "This page leads to another site."),
        ("evil", "This page leads to another site."),
        ("inside", "This page leads to https://shop.example/secret/"),
        ("moved", "This page leads to https://shop.example/billing/"),
    ],
)
def test_redirect_outside_of_the_listed_views_is_not_followed(visit, kind, told):
    result = visit("answer", kind=kind)
    assert told in text(result) and "not listed" not in text(result)


@dataclass
class Next:
    next: str


@pytest.mark.parametrize(
    ("there", "link"),
    [
        ("//evil.example/billing/", "https://evil.example/billing/"),
        (
            "https://shop.example@evil.example/billing/",
            "https://shop.example@evil.example/billing/",
        ),
        (
            "https://shop.example.evil.example/billing/",
            "https://shop.example.evil.example/billing/",
        ),
        ("http://shop.example/billing/", "http://shop.example/billing/"),
        ("https://shop.example:444/billing/", "https://shop.example:444/billing/"),
        ("\\\\evil.example/billing/", None),
        ("javascript:alert(1)", None),
        ("file:///etc/passwd", None),
        ("https://[evil/", None),
        ("/secret/", None),
        ("/billing/../secret/", None),
        ("/%62illing/../secret/", None),
        ("/secret/?next=/billing/", None),
        ("../secret/", None),
    ],
)
def test_redirect_with_a_crafted_address_is_not_followed(
    views, server, connect, alice, there, link
):
    views(get=["sent", "billing:list"], query={"sent": Next})
    result = connect(alice, server=server).call("sent", next=there)
    assert "not listed" not in json.dumps(result) and "Invoices" not in json.dumps(result)
    links = [block["uri"] for block in result["content"] if block["type"] == "resource_link"]
    assert links == ([link] if link else [])


def test_redirect_without_a_location_is_a_page(visit):
    assert text(visit("answer", kind="nowhere")) == "lost"


def test_redirect_to_a_listed_view_is_followed(views, server, connect, alice, invoice):
    views(get=["answer", "billing:list"])
    assert "- A-1" in text(connect(alice, server=server).call("answer", kind="listed"))


def test_redirect_loop_is_an_error(views, server, connect, alice):
    views(get=["loop"])
    client = connect(alice, server=server)
    assert "form a loop" in refusal_text(client.call("loop", number=1))


class SentForm(site.forms.Form):
    next = site.forms.CharField()


@pytest.mark.parametrize(
    "there", ["/answer/gone/", "/answer/denied/", "/billing/4711/", "/guarded/"]
)
def test_post_succeeds_if_the_redirected_page_cannot_be_shown(views, server, connect, alice, there):
    shown = ["answer", "guarded", "billing:detail"]
    views(post=["sent"], get=shown, forms={"sent": SentForm})
    result = connect(alice, server=server).call("sent", next=there)
    assert not result["isError"]
    assert text(result) == f"Done. It leads to https://shop.example{there}"
    assert Tag.objects.get().label == "sent"


def test_failure_of_the_redirected_page_rolls_back_the_post(views, server, connect, alice):
    views(post=["sent"], get=["answer"], forms={"sent": SentForm})
    assert connect(alice, server=server).call("sent", next="/answer/fails/")["isError"]
    assert not Tag.objects.exists()


def test_redirect_with_a_too_long_query_string_is_not_followed(views, server, connect, alice):
    """An error would roll back what the view has saved."""
    views(post=["sent"], get=["billing:list"], forms={"sent": SentForm})
    client = connect(alice, server=server)
    result = client.call("sent", next="/billing/?x=" + "y" * 17_000)
    assert not result["isError"] and "/billing/?x=yyy" in text(result)
    assert Tag.objects.filter(label="sent").exists()


# Responses.


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("html", "# Hello\n\nA **bold** [link](/x/).\n\nshown"),
        ("csv", "a;b\n1;ä"),
        ("nojson", "{"),
        ("list", '["a", "b"]'),
        ("nocharset", "\ufffd"),
        ("stream", "one two"),
        ("astream", "one two"),
        ("empty", "The page is empty."),
        ("cookie", "cookie set"),
    ],
)
def test_response_is_returned_as_text(visit, kind, said):
    result = visit("answer", kind=kind)
    assert not result["isError"]
    assert text(result) == said
    assert "hunter2" not in json.dumps(result)


def test_pages_option_converts_html_to_plain_text(visit):
    result = visit("answer", kind="html", attributes={"pages": "text"})
    assert text(result).splitlines() == ["Hello", "A", "bold", "link", ".", "shown"]


def test_json_response_is_structured_content(visit):
    assert data(visit("answer", kind="json")) == {"a": [1, None]}


def test_deeply_nested_html_is_converted(visit):
    assert text(visit("answer", kind="deep")) == "deep"


@pytest.mark.parametrize(
    ("kind", "type", "mime"),
    [("png", "image", "image/png"), ("wav", "audio", "audio/wav")],
)
def test_images_and_audio_are_content_blocks(visit, kind, type, mime):
    (block,) = visit("answer", kind=kind)["content"]
    assert (block["type"], block["mimeType"]) == (type, mime)


@pytest.mark.parametrize(
    ("kind", "uri", "mime", "content"),
    [
        ("bytes", "view://answer/bytes", "application/octet-stream", b"\x00\x01"),
        ("notype", "view://answer/notype", "application/octet-stream", b"\x00"),
        ("file", "view://answer/%C3%BC.zip", "application/zip", b"PK\x03\x04"),
    ],
)
def test_other_files_are_embedded_resources(visit, kind, uri, mime, content):
    (block,) = visit("answer", kind=kind)["content"]
    found = block["resource"]
    assert (found["uri"], found["mimeType"]) == (uri, mime)
    assert base64.b64decode(found["blob"]) == content


@pytest.mark.parametrize("kind", ["big", "endless"])
def test_response_that_is_too_large_is_refused(visit, settings, kind):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"RESULT_SIZE": 500_000}
    assert "500,000" in refusal_text(visit("answer", kind=kind))


def test_event_stream_is_refused(visit):
    assert "without end" in refusal_text(visit("answer", kind="events"))


@pytest.mark.parametrize("debug", [True, False])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("denied", "Only on Mondays."),
        ("forbidden", "Permission denied."),
        ("gone", "There is no such thing."),
        ("suspicious", "400 Bad Request."),
        ("tool", "Not on a Sunday."),
        ("conflict", "409 Conflict. no, because of the total"),
        ("teapot", '418 I\'m a Teapot. {"error": "teapot"}'),
        ("method", "405 Method Not Allowed."),
    ],
)
def test_error_response_is_a_message(visit, settings, kind, said, debug):
    settings.DEBUG = debug
    assert refusal_text(visit("answer", kind=kind)) == said


@pytest.mark.parametrize("kind", ["fails", "down", "none"])
def test_server_error_is_masked_and_logged(visit, kind, caplog):
    told = refusal_text(visit("answer", kind=kind))
    assert told == "Something went wrong on the server; the error was logged there."
    assert any(record.name.startswith("django_mcp") for record in caplog.records)


def test_suspicious_operation_in_middleware_is_masked_under_debug(visit, settings):
    settings.DEBUG = True
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "tests.bridges.middleware.suspicious"]
    assert refusal_text(visit("seen")) == "400 Bad Request."


def test_debug_page_of_django_is_not_sent(visit, settings):
    settings.DEBUG = True
    result = visit("answer", kind="down")
    assert result["isError"]
    assert "SECRET_KEY" not in json.dumps(result) and "INSTALLED_APPS" not in json.dumps(result)
    result = visit("answer", kind="fails")
    assert text(result) == "RuntimeError: the password is hunter2"  # as for any tool under DEBUG


@pytest.mark.parametrize("kind", ["fails", "conflict"])
def test_refused_post_is_rolled_back(visit, kind):
    assert visit("answer", post=True, kind=kind)["isError"]
    assert not Tag.objects.exists()


def test_non_atomic_requests_decorator_is_respected(views, server):
    views(post=["piecemeal", "seen"])
    tools = valid_catalog(server).tools
    assert (tools["piecemeal"].atomic, tools["seen"].atomic) == (False, True)


def test_transaction_is_in_the_named_database(views, server):
    views(post=["piecemeal", "seen"], atomic=settings.DATABASE)
    tools = valid_catalog(server).tools
    # The decorator of ``piecemeal`` is for the database "default".
    expected = False if settings.DATABASE == "default" else settings.DATABASE
    assert tools["piecemeal"]._transaction == expected
    assert tools["seen"]._transaction == settings.DATABASE


def test_transaction_in_an_unknown_database_is_reported(views, server):
    views(post=["seen"], atomic="nowhere")
    assert single_problem(server).id == "django_mcp.E025"


# Permissions.


def test_anonymous_client_sees_no_views(views, server, connect):
    views(get=["seen"])
    assert connect(server=server).request("tools/list")["tools"] == []


def test_public_view_runs_as_the_anonymous_user(views, server, connect):
    views(get=["seen", "billing:list"], permission=mcp.PUBLIC)
    client = connect(server=server)
    found = data(client.call("seen"))
    assert (found["user"], found["signed_in"], found["session"]) == ("", False, None)
    assert refusal_text(client.call("billing_list")) == "Permission denied."


def test_view_requires_the_permission_of_its_class(views, server, connect, alice, invoice):
    from django.contrib.auth.models import Permission, User

    views(post=["billing:delete"], permission=mcp.AUTHENTICATED)
    assert connect(alice, server=server).request("tools/list")["tools"] == []
    with pytest.raises(RpcError, match="Unknown tool"):
        connect(alice, server=server).call("billing_delete", pk=invoice.pk)
    assert Invoice.objects.exists()
    alice.user_permissions.add(Permission.objects.get(codename="delete_invoice"))
    client = connect(User.objects.get(pk=alice.pk), server=server)
    assert not client.call("billing_delete", pk=invoice.pk)["isError"]
    assert not Invoice.objects.exists()


def test_reason_agrees_with_the_decision(views, server, alice, bob):
    from tests.declarations.helpers import make_request

    views(post=["billing:delete"])
    tool = valid_catalog(server).tools["billing_delete"]
    assert "shop.delete_invoice" in tool._rule
    for user in (alice, bob, None):
        request = make_request(user, server)
        assert decide(tool, request).allowed == tool._is_allowed(request)
    assert "shop.delete_invoice" in decide(tool, make_request(alice, server)).reason


def test_redirect_to_the_login_page_is_permission_denied(visit):
    assert refusal_text(visit("guarded")) == "Permission denied."


def test_hidden_and_missing_rows_have_the_same_message(views, server, connect, alice, bob, invoice):
    views(get=["billing:detail"])
    client = connect(bob, server=server)
    hidden, missing = (
        refusal_text(client.call("billing_detail", pk=pk)) for pk in (invoice.pk, 4711)
    )
    assert hidden == missing
    assert "A-1: 12.50" in text(connect(alice, server=server).call("billing_detail", pk=invoice.pk))


def test_has_permission_of_view_tools_decides(views, server, connect, alice, bob):
    class Own(ViewTools):
        get = ["seen"]

        def has_permission(self, request):
            return request.user.username == "bob"

    server.register(Own)
    assert connect(alice, server=server).request("tools/list")["tools"] == []
    assert data(connect(bob, server=server).call("seen"))["user"] == "bob"


# Questions.


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
def test_question_of_a_view_passes_through_middleware(
    views, server, connect, alice, settings, revision
):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "tests.bridges.middleware.Swallowing"]
    views(post=["ask"])
    answer = {"action": "accept", "content": {"answer": True}}
    site.ASKED.clear()
    answers = {"elicitation/create": lambda params: answer}
    client = connect(alice, server=server, answers=answers, revision=revision)
    assert text(client.call("ask")) == "sure: True"
    assert len(site.ASKED) == 2
    assert Tag.objects.count() == 1  # the first run was rolled back


def test_asynchronous_view_can_ask_a_question(views, server, connect, alice, settings):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "tests.bridges.middleware.only_async"]
    views(get=["aask"])
    answer = {"action": "accept", "content": {"answer": False}}
    client = connect(alice, server=server, answers={"elicitation/create": lambda params: answer})
    assert text(client.call("aask")) == "sure: False"


# Resources.


def test_views_can_be_read_as_resources(views, server, connect, alice, invoice):
    views(resources=["billing:list", "billing:detail", "optional", "deep:path", "answer"])
    catalog = valid_catalog(server)
    assert list(catalog.resources) == ["view://billing/list", "view://optional"]
    assert list(catalog.templates) == [
        "view://billing/detail/{pk}", "view://optional/{page}", "view://optional/{page}/{order}",
        "view://deep/path/{tenant}/{+rest}", "view://answer/{kind}",
    ]  # fmt: skip
    client = connect(alice, server=server)

    def read(uri):
        (part,) = client.request("resources/read", uri=uri)["contents"]
        return part

    assert read("view://billing/list") == {
        "uri": "view://billing/list", "mimeType": "text/markdown", "text": "# Invoices\n\n- A-1",
    }  # fmt: skip
    assert read(f"view://billing/detail/{invoice.pk}")["text"] == "A-1: 12.50"
    seen = json.loads(read("view://deep/path/3/a/b%20c")["text"])
    assert seen["kwargs"] == {"tenant": "3", "rest": "a/b c"}
    assert read("view://answer/json")["mimeType"] == "application/json"
    assert base64.b64decode(read("view://answer/png")["blob"]) == b"\x89PNG"
    assert read("view://answer/html")["mimeType"] == "text/markdown"


@pytest.mark.parametrize(
    "uri", ["billing/detail/4711", "answer/gone", "answer/denied", "billing/detail/x"]
)
def test_resource_of_a_missing_or_forbidden_page_is_not_found(views, server, connect, alice, uri):
    views(resources=["billing:detail", "answer"])
    with pytest.raises(RpcError, match="not found|Resource"):
        connect(alice, server=server).request("resources/read", uri=f"view://{uri}")


def test_resource_of_a_hidden_row_has_the_error_of_a_missing_one(
    views, server, connect, bob, invoice
):
    views(resources=["billing:detail"])
    with pytest.raises(RpcError) as hidden:
        connect(bob, server=server).request(
            "resources/read", uri=f"view://billing/detail/{invoice.pk}"
        )
    with pytest.raises(RpcError) as missing:
        connect(bob, server=server).request("resources/read", uri="view://billing/detail/4711")
    assert hidden.value.code == missing.value.code


# Checks.


class WithoutForm(site.forms.Form):
    def __init__(self, user, **kwargs):
        super().__init__(**kwargs)


class Clashing(site.forms.Form):
    pk = site.forms.IntegerField()


@pytest.mark.parametrize(
    ("attributes", "number"),
    [
        ({"get": "seen"}, "E060"),
        ({"get": [1]}, "E060"),
        ({"post": None}, "E060"),
        ({}, "E102"),
        ({"get": ["seen"], "pages": "html"}, "E103"),
        ({"get": ["nowhere"]}, "E105"),
        ({"get": ["billing:lists"]}, "E105"),
        ({"get": ["unnamed"]}, "E106"),
        ({"post": ["only-get"]}, "E107"),
        ({"get": ["seen"], "forms": {"seen": site.CloseForm}}, "E108"),
        ({"get": ["seen"], "names": {"text": "x"}}, "E108"),
        ({"post": ["needy"]}, "E109"),
        ({"post": ["seen"], "forms": {"seen": WithoutForm}}, "E109"),
        ({"post": ["seen"], "forms": {"seen": 5}}, "E109"),
        ({"post": ["seen"], "forms": {"seen": dict}}, "E109"),
        ({"get": ["seen"], "query": {"seen": Payload}}, "E109"),
        ({"post": ["billing:close"], "forms": {"billing:close": Clashing}}, "E110"),
        ({"get": ["seen"], "permission": "nonsense"}, "E011"),
        ({"get": ["seen", "text"], "names": {"text": "seen"}}, "E001"),
    ],
)
def test_invalid_view_tools_are_errors(views, server, attributes, number):
    views(**attributes)
    assert problem_ids(server) == [number]
    assert single_problem(server).hint


def page(request):
    return HttpResponse("seen")


@permission_required(["shop.view_invoice", "shop.view_invoise"])
async def awaited(request):
    return HttpResponse("seen")


class Page(View):
    def get(self, request):
        return HttpResponse("seen")


class Required(PermissionRequiredMixin, Page):
    permission_required = ["shop.view_invoice", "shop.view_invoise"]


@method_decorator([never_cache, permission_required("shop.view_invoise")], name="dispatch")
class Decorated(Page):
    pass


class DecoratedMethod(Page):
    @method_decorator(permission_required("shop.view_invoise"))
    def get(self, request):
        return HttpResponse("seen")


RESTRICTED = [
    permission_required("shop.view_invoise")(page),
    never_cache(permission_required("shop.view_invoise", raise_exception=True)(page)),
    permission_required("shop.view_invoise")(Page.as_view()),
    awaited,
    Required.as_view(),
    Required.as_view(permission_required="shop.view_invoise"),
    Decorated.as_view(),
    DecoratedMethod.as_view(),
]


@pytest.mark.parametrize("listed", ["get", "resources"])
@pytest.mark.parametrize("view", RESTRICTED)
def test_view_that_requires_a_permission_that_does_not_exist_is_a_warning(
    views, server, settings, listed, view
):
    class Urls:
        urlpatterns = [
            path("page/", view, name="page"),
            path("right/", permission_required("shop.view_invoice")(page), name="right"),
        ]

    settings.ROOT_URLCONF = Urls
    views(**{listed: ["page", "right"]})
    message = single_problem(server)
    assert message.id == "django_mcp.W011" and "'shop.view_invoise'" in message.msg
    assert "Did you mean 'shop.view_invoice'?" in message.hint


def test_misspelled_view_name_has_a_hint(views, server):
    views(get=["billing:lists"])
    assert "billing:list" in str(single_problem(server).hint)


def test_missing_optional_library_is_an_error(views, server, monkeypatch):
    monkeypatch.setattr("django_mcp.bridges.views.tools.find_spec", lambda name: None)
    views(get=["seen"])
    assert problem_ids(server) == ["E104"]


def test_public_host_that_is_not_allowed_is_a_warning(views, server, settings):
    views(get=["seen"])
    settings.ALLOWED_HOSTS = ["other.example"]
    assert problem_ids(server) == ["W111"]
    settings.ALLOWED_HOSTS, settings.DEBUG = [], True
    for url, found in (("https://shop.example", ["W111"]), ("http://localhost:8000", [])):
        settings.DJANGO_MCP = settings.DJANGO_MCP | {"URL": url}
        server._forget()
        assert problem_ids(server) == found


def test_import_does_not_require_optional_libraries():
    """Otherwise the check that names the missing library would not run."""
    code = """
        import sys
        sys.modules["markdownify"] = sys.modules["bs4"] = None
        from django_mcp.bridges.views import ViewTools
        assert "pydantic" not in sys.modules
    """
    done = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_registering_view_tools_with_a_view_is_an_error(server):
    server.register(site.seen, ViewTools)
    assert problem_ids(server) == ["E003"]


def test_conditions_mention_that_the_view_checks_permissions(views, server, alice):
    """Reading may fail even if all other conditions are met."""
    views(resources=["billing:detail"])
    (found,) = valid_catalog(server).templates.values()
    reasons = explain_read(
        found, dict.fromkeys(found._template.names, "1"), make_request(alice, server)
    )
    assert reasons[-1].reason == "the view 'billing:detail' checks permissions when it is read"


class NumberForm(forms.ModelForm):
    class Meta:
        model = Invoice
        fields = ["number"]


@pytest.mark.parametrize(
    ("view", "method", "words"),
    [
        (CreateView.as_view(form_class=NumberForm), "post", "Add one invoice."),
        (DetailView.as_view(queryset=Invoice.objects.all()), "get", "Show one invoice."),
        (ListView.as_view(queryset=Invoice.objects.all()), "get", "List invoices."),
        (DeleteView.as_view(queryset=Invoice.objects.all(), success_url="/"), "post",
         "Delete one invoice."),
    ],
)  # fmt: skip
def test_description_uses_the_model_of_form_class_or_queryset(view, method, words):
    route = Route("one", [Pattern("one/", view)])
    tool = ViewTool(
        ViewTools(),
        route,
        name="one",
        description=None,
        pages="markdown",
        redirects_to=(),
        posts=method == "post",
    )
    assert tool.description == words
