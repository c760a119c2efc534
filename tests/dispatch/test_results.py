"""What a function returned, as the result of its method."""

from __future__ import annotations

import base64
import enum
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.utils.translation import gettext_lazy, override

import django_mcp as mcp
from django_mcp.declare.outputs import Mismatch
from django_mcp.dispatch.results import blocks, prompt_result, read_result
from tests.client import RpcError
from tests.shop.models import Tag


@pytest.fixture
def result_of(connect, server):
    """The result of a tool that returns a value, declared as ``returns``."""

    def called(value: Any, returns: Any = None, revision: str = "2026-07-28") -> Any:
        def tool(request: mcp.Request):
            return value() if callable(value) else value

        if returns is not None:
            tool.__annotations__["return"] = returns
        server.forget()
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
def test_what_is_content_is_shown_as_it_is(result_of, value, expected):
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
def test_what_is_data_goes_out_twice(result_of, value, expected, text):
    for returns in (None, type(value)):
        result = result_of(value, returns)
        assert result["structuredContent"] == expected
        assert [block["text"] for block in result["content"]] == [text]


def test_a_text_that_is_declared_is_data(result_of):
    assert "structuredContent" not in result_of("x")
    assert result_of("x", str)["content"][0]["text"] == "x"


def test_a_lazy_text_is_translated_for_the_caller(result_of):
    with override("de"):
        result = result_of(lambda: gettext_lazy("Yes"))
    assert result["content"] == [{"type": "text", "text": "Ja"}]


def test_each_kind_of_content_is_a_block(result_of, revision):
    values = [
        mcp.Image(b"\x89PNG"), mcp.Audio(b"RIFF"), mcp.ResourceLink("shop://x", "x"),
        mcp.EmbeddedResource("shop://x", "text"),
    ]  # fmt: skip
    kinds = [block["type"] for block in result_of(values, revision=revision)["content"]]
    known = {"2024-11-05": ["image", "text", "text", "resource"],
             "2025-03-26": ["image", "audio", "text", "resource"]}  # fmt: skip
    assert kinds == known.get(revision, ["image", "audio", "resource_link", "resource"])


def test_bytes_alone_say_nothing(result_of):
    assert result_of(b"\x00")["isError"]
    with pytest.raises(Mismatch, match="Image or an Audio"):
        blocks(b"\x00")


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
def test_rows_are_data_and_links(connect, tags, how):
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


def test_rows_are_fetched_while_the_transaction_is_there(connect, tags, in_transaction):
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
        ["x" * 600, "x" * 600],
        lambda: mcp.Image(b"x" * 800),
        lambda: mcp.EmbeddedResource("shop://x", "x" * 1001),
        lambda: [mcp.ResourceLink(f"shop://{number:040}", "x") for number in range(30)],
        {"a": "x" * 501},
    ],
)
def test_a_result_has_a_size(result_of, settings, value):
    settings.DJANGO_MCP = {"RESULT_SIZE": 1000}
    result = result_of(value)
    assert result["isError"] and "more than the 1,000 allowed" in result["content"][0]["text"]
    assert not result_of("x" * 990)["isError"]


def test_a_prompt_and_a_resource_have_a_size_too(connect, server, settings):
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


def test_the_messages_of_a_prompt():
    image = mcp.Image(b"\x89PNG")
    values = ["one", mcp.Message("two", "assistant"), image, mcp.Message(image)]
    found = prompt_result("Words.", values)
    assert found["description"] == "Words."
    kinds = [(message["role"], message["content"]["type"]) for message in found["messages"]]
    assert kinds == [("user", "text"), ("assistant", "text"), ("user", "image"), ("user", "image")]
    assert prompt_result(None, "one") == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "one"}}]
    }


class Readable:
    mime_type, shared, cache = None, False, 0


def test_the_contents_of_a_resource():
    def contents(value: Any, **given: Any) -> Any:
        resource = Readable()
        resource.__dict__.update(given)
        found = read_result(resource, "shop://it", value)
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


def test_rows_are_no_content(db):
    """Their ``__str__`` may say anything: no whitelist bounds it."""
    for value in (Tag(label="secret"), Tag.objects.all()):
        with pytest.raises(Mismatch, match="is no content"):
            blocks(["text", value])
    with pytest.raises(Exception, match="is no content"):
        read_result(Readable(), "shop://it", {"tag": Tag(label="secret")})
