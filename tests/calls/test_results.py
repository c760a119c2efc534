"""The return values of tools, prompts and resources become the results of their methods."""

from __future__ import annotations

import base64
import enum
import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.utils.functional import SimpleLazyObject, lazy
from django.utils.translation import gettext_lazy, override

import django_mcp as mcp
from django_mcp.calls.results import blocks, prompt_result, read_result, tool_result
from django_mcp.declarations.outputs import HiddenRows, Mismatch, Output
from tests.client import RpcError
from tests.declarations.helpers import make_request
from tests.shop.models import Company, Invoice, Tag


@pytest.fixture
def result_of(connect, server):
    """The result of a tool that returns a value, declared as ``returns``."""

    def called(value: Any, returns: Any = None, revision: str = "2026-07-28") -> Any:
        def tool(request: mcp.Request):
            return value() if callable(value) else value

        if returns is not None:
            tool.__annotations__["return"] = returns
        server._forget()
        server._records.clear()
        server.tool(permission=mcp.PUBLIC, read_only=True)(tool)
        return connect(server=server, revision=revision).call("tool")

    return called


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    on: date = date(2026, 1, 2)


@pytest.mark.parametrize(
    "value, expected",
    [
        (None, []),
        ("text", ["text"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        (("a", mcp.Text("b")), ["a", "b"]),
        (["a", {"b": 1}], ["a", '{"b": 1}']),
        (["a", 1], ["a", "1"]),
        (mcp.Text("é 😀"), ["é 😀"]),
    ],
)
def test_content_is_returned_unchanged(result_of, value, expected):
    result = result_of(value)
    assert [block["text"] for block in result["content"]] == expected
    assert "structuredContent" not in result and result["isError"] is False


@pytest.mark.parametrize(
    "value, expected, text",
    [
        (7, 7, "7"),
        (True, True, "true"),
        (1.5, 1.5, "1.5"),
        ([], [], "[]"),
        ([1, 2], [1, 2], "[1, 2]"),
        ({"a": "é"}, {"a": "é"}, '{"a": "é"}'),
        (Decimal("1.50"), "1.50", "1.50"),
        (date(2026, 1, 2), "2026-01-02", "2026-01-02"),
        (Colour.RED, "red", "red"),
        (Point(1), {"x": 1, "on": "2026-01-02"}, '{"x": 1, "on": "2026-01-02"}'),
    ],
)
def test_data_is_returned_as_text_and_as_structured_content(result_of, value, expected, text):
    for returns in (None, type(value)):
        result = result_of(value, returns)
        assert result["structuredContent"] == expected
        assert [block["text"] for block in result["content"]] == [text]


def test_declared_string_is_structured_content(result_of):
    assert "structuredContent" not in result_of("x")
    assert result_of("x", str)["content"][0]["text"] == "x"


def test_lazy_text_is_translated_for_the_caller(result_of):
    with override("de"):
        result = result_of(lambda: gettext_lazy("Yes"))
    assert result["content"] == [{"type": "text", "text": "Ja"}]


def test_each_kind_of_content_is_a_block_that_the_revision_defines(result_of, revision):
    values = [
        mcp.Image(b"\x89PNG"), mcp.Audio(b"RIFF"), mcp.ResourceLink("shop://x", "x"),
        mcp.EmbeddedResource("shop://x", "text"),
    ]  # fmt: skip
    kinds = [block["type"] for block in result_of(values, revision=revision)["content"]]
    known = {"2024-11-05": ["image", "text", "text", "resource"],
             "2025-03-26": ["image", "audio", "text", "resource"]}  # fmt: skip
    assert kinds == known.get(revision, ["image", "audio", "resource_link", "resource"])


def test_bytes_without_a_content_type_are_an_error(result_of):
    assert result_of(b"\x00")["isError"]
    with pytest.raises(Mismatch, match="Image or an Audio"):
        blocks(b"\x00", make_request())


@pytest.fixture
def tags(server, db):
    @server.register(Tag)
    class TagResource(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["label"]

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    Tag.objects.create(label="a")
    Tag.objects.create(label="b")
    return server


@pytest.mark.parametrize("how", ["row", "list", "queryset"])
def test_rows_are_structured_content_and_links(connect, tags, how):
    values = {
        "row": lambda: Tag.objects.get(label="a"),
        "list": lambda: list(Tag.objects.order_by("label")),
        "queryset": lambda: Tag.objects.order_by("label"),
    }

    def tool(request: mcp.Request) -> list[Tag]:
        return values[how]()

    if how == "row":
        tool.__annotations__["return"] = Tag
    tags.tool(permission=mcp.PUBLIC, read_only=True)(tool)
    result = connect(server=tags).call("tool")
    rows = result["structuredContent"] if how != "row" else [result["structuredContent"]]
    assert [row["label"] for row in rows] == ["a", "b"][: len(rows)]
    links = [block["uri"] for block in result["content"] if block["type"] == "resource_link"]
    assert links == [row["_uri"] for row in rows]


def test_rows_are_fetched_inside_the_transaction(connect, tags, in_transaction):
    seen: list[bool] = []

    class Label(str):
        pass

    @tags.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> list[Tag]:
        class Watched(list):
            def __iter__(self):
                seen.append(in_transaction())
                return super().__iter__()

        return Watched(Tag.objects.all())

    connect(server=tags).call("tool")
    assert seen and all(seen)


# Bounds.


@pytest.mark.parametrize(
    "value",
    [
        "x" * 1001,
        "ü" * 501,
        ["x" * 600, "x" * 600],
        lambda: mcp.Image(b"x" * 800),
        lambda: mcp.EmbeddedResource("shop://x", "x" * 1001),
        lambda: [mcp.ResourceLink(f"shop://{number:040}", "x") for number in range(30)],
        {"a": "x" * 501},
    ],
)
def test_size_of_a_tool_result_is_limited(result_of, settings, value):
    settings.DJANGO_MCP = {"RESULT_SIZE": 1000}
    result = result_of(value)
    assert result["isError"] and "more than the 1,000 allowed" in result["content"][0]["text"]
    assert not result_of("x" * 990)["isError"]


def test_size_of_prompts_and_resources_is_limited(connect, server, settings):
    settings.DJANGO_MCP = {"RESULT_SIZE": 1000}

    @server.prompt(permission=mcp.PUBLIC)
    def prompt(request: mcp.Request) -> list[str]:
        return ["x" * 600, "y" * 600]

    @server.resource("shop://large", permission=mcp.PUBLIC)
    def resource(request: mcp.Request) -> bytes:
        return b"x" * 1000

    client = connect(server=server)
    for method, params in (
        ("prompts/get", {"name": "prompt"}),
        ("resources/read", {"uri": "shop://large"}),
    ):
        with pytest.raises(RpcError, match="more than the 1,000 allowed"):
            client.request(method, **params)


# Prompts and resources.


class Readable:
    name, description, mime_type, shared, cache = "it", None, None, False, 0
    template_name, _messages = None, mcp.Prompt._messages


def test_prompt_result_contains_messages_with_roles():
    image = mcp.Image(b"\x89PNG")
    values = ["one", mcp.Message("two", "assistant"), image, mcp.Message(image)]
    prompt = Readable()
    prompt.description = "Words."
    found = prompt_result(prompt, make_request(), values)
    assert found["description"] == "Words."
    kinds = [(message["role"], message["content"]["type"]) for message in found["messages"]]
    assert kinds == [("user", "text"), ("assistant", "text"), ("user", "image"), ("user", "image")]
    assert prompt_result(Readable(), make_request(), "one") == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "one"}}]
    }


def test_resource_result_contains_contents_with_mime_types():
    def contents(value: Any, **given: Any) -> Any:
        resource = Readable()
        resource.__dict__.update(given)
        found = read_result(resource, "shop://it", make_request(), value)
        assert found["cacheScope"] == ("public" if given.get("shared") else "private")
        assert found["ttlMs"] == given.get("cache", 0) * 1000
        return found["contents"]

    assert contents("text") == [{"uri": "shop://it", "mimeType": "text/plain", "text": "text"}]
    assert (
        contents("text", mime_type="text/markdown", shared=True)[0]["mimeType"] == "text/markdown"
    )
    assert base64.b64decode(contents(b"\x00", cache=60)[0]["blob"]) == b"\x00"
    assert contents({"on": date(2026, 1, 2)})[0]["text"] == '{\n  "on": "2026-01-02"\n}'
    assert contents([1, 2])[0]["text"] == "[\n  1,\n  2\n]"
    several = contents([mcp.Contents("a"), mcp.Contents(b"b", uri="shop://b")])
    assert [one["uri"] for one in several] == ["shop://it", "shop://b"]


# Rows.


class Own(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["number"]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(company__members=request.user)


@pytest.fixture
def giving(server):
    """A server with a tool that gives an invoice to another company, and returns it."""
    server.register(Invoice, Own)

    @server.tool(permission=mcp.AUTHENTICATED)
    def give(request: mcp.Request, invoice: Invoice, trust: bool = False) -> Invoice:
        invoice.company = Company.objects.get(name="Bolts")
        invoice.save()
        return mcp.trusted(invoice) if trust else invoice

    return server


def test_hidden_row_is_not_found_and_logged_and_the_tool_is_rolled_back(
    giving, connect, alice, bob, invoice, caplog
):
    result = connect(alice, server=giving).call("give", invoice=invoice.pk)
    assert result["isError"] and "structuredContent" not in result
    assert result["content"] == [{"type": "text", "text": "Not found."}]
    invoice.refresh_from_db()
    assert invoice.company.name == "Acme"
    (record,) = [one for one in caplog.records if one.levelname == "ERROR"]
    told = f"tool=give user={alice.pk} model=shop.Invoice count=1 pk={invoice.pk}"
    assert told in record.getMessage() and "mcp.trusted" in record.getMessage()


def test_trusted_row_is_a_result_with_a_link(giving, connect, alice, bob, invoice):
    result = connect(alice, server=giving).call("give", invoice=invoice.pk, trust=True)
    assert result["structuredContent"]["number"] == "A-1"
    assert [block["type"] for block in result["content"]] == ["text", "resource_link"]


# Lazy translations, outside of definitions.


def test_lazy_description_of_a_prompt_is_text(server, connect):
    @server.prompt(permission=mcp.PUBLIC, description=gettext_lazy("Yes"))
    def ask(request: mcp.Request) -> str:
        return "text"

    with override("de"):
        result = connect(server=server).request("prompts/get", name="ask")
        assert result["description"] == str(gettext_lazy("Yes"))


def test_lazy_title_of_a_link_is_text(server, connect):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def find(request: mcp.Request) -> mcp.ResourceLink:
        return mcp.ResourceLink("rules://all", "rules", gettext_lazy("Yes"), gettext_lazy("No"))

    (link,) = connect(server=server).call("find")["content"]
    assert (link["title"], link["description"]) == ("Yes", "No")


def test_lazy_message_of_an_error_is_text(server, connect):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def fail(request: mcp.Request) -> str:
        raise mcp.ToolError(gettext_lazy("No"))

    assert connect(server=server).failure("fail") == "No"


# Rows beside text, in prompts, in resources and in what is said during a call.


class Holder:
    """No dataclass: JSON has no form for it, and its text is that of its row."""

    def __init__(self, row):
        self.row = row

    def __str__(self):
        return f"holds {self.row}"

    __repr__ = __str__


@dataclass
class Card:
    row: Any


BESIDE_TEXT = [
    lambda row: ["Found:", row],
    lambda row: ["Found:", {row}],
    lambda row: ["Found:", [row]],
    lambda row: ["Found:", {"a": row}],
    lambda row: ["Found:", {"a": row}.values()],
    lambda row: ["Found:", Card(row)],
    lambda row: ["Found:", SimpleLazyObject(lambda: row)],
    lambda row: ["Found:", lazy(lambda: row, Invoice)()],
    lambda row: ("Found:", Invoice.objects.all()),
    lambda row: ["Found:", Invoice.objects.iterator()],
    lambda row: ["Found:", (one for one in [row])],
    lambda row: lazy(lambda: row, Invoice)(),
    lambda row: mcp.trusted(["x"]) and [mcp.Text("x"), row],
]
UNWRITTEN = [
    lambda row: ["Found:", Holder(row)],
    lambda row: ["Found:", {Holder(row)}],
    lambda row: ["Found:", {"a": Holder(row)}],
    lambda row: ["Found:", ValueError(row)],
    lambda row: ["Found:", row.__class__.objects],
    lambda row: ["Found:", lambda: row],
    lambda row: lazy(lambda: Holder(row), Holder)(),
]


@pytest.fixture
def own(server):
    server.register(Invoice, Own)
    return server


def rendered(kind: str, value: Any, request: Any) -> str:
    """What a tool, a prompt or a resource that returns ``value`` sends."""
    thing = Readable()
    if kind == "tool":
        thing._output = Output()
        return str(tool_result(thing, request, value))
    if kind == "prompt":
        return str(prompt_result(thing, request, value))
    if kind == "message":
        return str(prompt_result(thing, request, [mcp.Message(value)]))
    return str(read_result(thing, "shop://it", request, value))


KINDS = ["tool", "prompt", "message", "resource"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", BESIDE_TEXT)
def test_row_beside_text_is_shown_by_its_fields_and_checked(
    own, alice, bob, invoice, caplog, kind, shape
):
    request = make_request(alice, own)
    shown = rendered(kind, shape(invoice), request)
    assert "A-1" in shown and "_uri" in shown and "<Invoice" not in shown
    invoice.company = Company.objects.get(name="Bolts")
    invoice.save()
    with pytest.raises(HiddenRows, match="Not found"):
        rendered(kind, shape(invoice), request)
    assert f"user={alice.pk} model=shop.Invoice count=1 pk={invoice.pk}" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", UNWRITTEN)
def test_value_without_a_json_form_is_rejected(own, alice, invoice, kind, shape):
    with pytest.raises(Mismatch, match="no JSON form.*return"):
        rendered(kind, shape(invoice), make_request(alice, own))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "part",
    [
        lambda row: mcp.Text(row),
        lambda row: mcp.Text({row}),
        lambda row: mcp.EmbeddedResource("shop://x", row),
        lambda row: mcp.EmbeddedResource("shop://x", {"a": {row}}),
        lambda row: mcp.ResourceLink("shop://x", row),
        lambda row: mcp.ResourceLink("shop://x", title=row),
        lambda row: mcp.ResourceLink("shop://x", description={row}),
    ],
)
def test_content_made_of_a_row_is_rejected(own, alice, invoice, kind, part):
    if kind == "resource":
        value: Any = lambda: mcp.Contents({"a": part(invoice).block()})  # noqa: E731
    else:
        value = lambda: part(invoice) if kind == "message" else ["x", part(invoice)]  # noqa: E731
    with pytest.raises((Mismatch, TypeError, ValueError)):
        json.dumps(rendered(kind, value(), make_request(alice, own)))


@pytest.mark.parametrize("kind", ["tool", "prompt"])
def test_rows_beside_text_are_checked_by_one_query(
    own, alice, invoice, kind, django_assert_num_queries
):
    with django_assert_num_queries(1):
        rendered(kind, ["Found:", invoice, {"a": invoice}], make_request(alice, own))


@pytest.mark.parametrize("kind", KINDS)
def test_text_costs_no_query(own, alice, kind, django_assert_num_queries):
    with django_assert_num_queries(0):
        rendered(kind, ["a", "b", {"c": 1}], make_request(alice, own))


def test_row_of_a_prompt_that_its_caller_cannot_read_is_not_found(
    own, connect, alice, bob, invoice
):
    invoice.company = Company.objects.get(name="Bolts")
    invoice.save()

    @own.prompt(permission=mcp.AUTHENTICATED)
    def ask(request: mcp.Request):
        return {invoice}

    with pytest.raises(RpcError, match="Not found"):
        connect(alice, server=own).request("prompts/get", name="ask")
