"""Tools: a function of (request, arguments) whose signature is its schema, and its checks."""

from decimal import Decimal
from typing import Annotated

import pytest
from django.db import connection
from pydantic import Field

import django_mcp as mcp

from .world import asked, ids, only, right


def add(request, a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: The first.
    """
    return a + b


class Refund(mcp.Tool):
    """Refund an invoice."""

    title = "Refund"
    destructive = True
    idempotent = False
    open_world = True

    def handle(self, request, amount: Annotated[Decimal, Field(gt=0)]) -> dict[str, str]:
        return {"amount": str(amount)}


# What lists show.


def test_a_function(server):
    server.tool(add)
    assert right(server).tools["add"]._definition() == {
        "name": "add",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "The first."},
                "b": {"type": "integer", "default": 1},
            },
            "required": ["a"],
            "additionalProperties": False,
        },
        "outputSchema": {"type": "integer"},
    }


def test_a_class(server):
    server.register(Refund)
    shown = right(server).tools["refund"]._definition()
    assert (shown["name"], shown["title"]) == ("refund", "Refund")
    assert shown["description"] == "Refund an invoice."
    assert shown["annotations"] == {
        "destructiveHint": True, "idempotentHint": False, "openWorldHint": True,
    }  # fmt: skip


def test_what_says_nothing_shows_nothing(server):
    server.tool(name="a")(lambda request: "x")
    shown = right(server).tools["a"]._definition()
    assert shown == {"name": "a", "inputSchema": {"type": "object", "additionalProperties": False}}


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("read_only", "readOnlyHint"),
        ("destructive", "destructiveHint"),
        ("idempotent", "idempotentHint"),
        ("open_world", "openWorldHint"),
    ],
)
@pytest.mark.parametrize("value", [True, False])
def test_hints(server, option, hint, value):
    server.tool(**{option: value})(add)
    assert right(server).tools["add"]._definition()["annotations"] == {hint: value}


def test_defaults():
    assert mcp.Tool.permission is mcp.AUTHENTICATED and mcp.Tool.atomic is True
    assert mcp.Tool.read_only is None


def test_what_it_does(server):
    server.tool(add)
    server.register(Refund)
    tools = right(server).tools
    assert tools["add"]._implementation(asked(), a=1, b=2) == 3
    assert tools["refund"]._implementation(asked(), amount=Decimal(1)) == {"amount": "1"}


def test_a_tool_without_a_result_promises_none(server):
    @server.tool
    def silent(request): ...

    assert "outputSchema" not in right(server).tools["silent"]._definition()


# Mistakes.


def untyped(request, a): ...
def nameless(request, *names: str): ...
def unknown(request, a: "Nowhere"): ...  # noqa: F821
def no_request() -> str: ...
def odd_result(request) -> type("Odd", (), {}): ...
def odd_argument(request, a: type("Odd", (), {})): ...


@pytest.mark.parametrize(
    "function", [untyped, nameless, unknown, no_request, odd_result, odd_argument]
)
def test_signatures_without_a_schema(server, function):
    server.tool(function)
    message = only(server)
    assert message.id == "django_mcp.E020" and message.hint


def test_a_class_without_a_method(server):
    server.register(type("Idle", (mcp.Tool,), {}))
    assert ids(server) == ["E020"]
    with pytest.raises(NotImplementedError):
        mcp.Tool().handle(asked())


@pytest.mark.parametrize("option", ["input_schema", "output_schema"])
@pytest.mark.parametrize("schema", [[], {"type": "nonsense"}, {"$ref": "http://a.example/s"}])
def test_handwritten_schemas_with_mistakes(server, option, schema):
    server.tool(name="a", **{option: schema})(lambda request, **anything: {})
    assert ids(server) == ["E021"]


def test_both_schemas_are_checked(server):
    server.tool(name="a", input_schema=[], output_schema=[])(lambda request: {})
    assert ids(server) == ["E021", "E021"]


def test_arguments_are_an_object(server):
    server.tool(name="a", input_schema={"type": "array"})(lambda request, **anything: {})
    assert only(server).id == "django_mcp.E022"


def test_a_header_is_one(server):
    @server.tool
    def ask(request, a: Annotated[float, mcp.Header("A")]) -> str:
        return "x"

    assert only(server).id == "django_mcp.E023"


def test_what_only_reads_destroys_nothing(server):
    server.tool(read_only=True, destructive=True)(add)
    assert only(server).id == "django_mcp.E024"


def test_a_transaction_is_of_a_database_there_is(server):
    server.tool(name="a", atomic="default")(add)
    server.tool(name="b", atomic=False)(add)
    server.tool(name="c", atomic="nowhere")(add)
    message = only(server)
    assert message.id == "django_mcp.E025" and "'nowhere'" in message.msg
    assert "default" in message.hint


def test_a_schema_and_its_function_meet(server):
    schema = {"type": "object", "properties": {"a": {}, "c": {}}}
    server.tool(input_schema=schema)(add)
    assert ids(server) == ["E026", "E026"]


def test_an_async_tool_that_writes_and_asks(server):
    @server.tool
    async def ask(request) -> str:
        return str(await request.aelicit("Sure?"))

    assert only(server).id == "django_mcp.W028"


def test_a_handwritten_schema_is_published_as_it_is(server):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    server.tool(input_schema=schema)(add)
    assert right(server).tools["add"]._definition()["inputSchema"] == schema


def test_durable_is_true_or_false(server):
    class Slow(Refund):
        durable = "yes"

    server.register(Slow)
    assert only(server).id == "django_mcp.E060"


def test_a_tool_may_be_durable(server):
    class Slow(Refund):
        durable = True

    server.register(Slow)
    assert right(server).tools["slow"].durable


@pytest.mark.parametrize(
    "options",
    [{"atomic": False}, {"read_only": True, "destructive": None}, {"transactional": "yes"}],
)
def test_what_is_all_in_its_transaction_has_one(server, options):
    server.register(type("Pure", (Refund,), {"transactional": True, **options}))
    assert only(server).id == "django_mcp.E029"


def test_an_async_tool_has_no_transaction(server):
    class Pure(Refund):
        transactional = True

        async def handle(self, request) -> str:
            return "x"

    server.register(Pure)
    assert only(server).id == "django_mcp.E029"


@pytest.mark.parametrize("log", ["default", "another"])
def test_what_is_all_in_its_transaction_is_beside_the_log(server, settings, log):
    """On SQLite it cannot be: nothing is said there, for it may be that only of a developer."""

    class Pure(Refund):
        transactional = True

    server.register(Pure)
    settings.DJANGO_MCP = {"DATABASE": log}
    if log == "default" or connection.vendor == "sqlite":
        assert right(server).tools["pure"].transactional
    else:
        assert only(server).id == "django_mcp.W029"
