"""Tools: their definition, execution and checks."""

from decimal import Decimal
from typing import Annotated

import pytest
from django.db import connection
from pydantic import Field

import django_mcp as mcp

from .helpers import make_request, problem_ids, single_problem, valid_catalog


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


# Definition.


def test_definition_of_a_tool_function(server):
    server.tool(add)
    assert valid_catalog(server).tools["add"]._definition() == {
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


def test_definition_of_a_tool_class(server):
    server.register(Refund)
    shown = valid_catalog(server).tools["refund"]._definition()
    assert (shown["name"], shown["title"]) == ("refund", "Refund")
    assert shown["description"] == "Refund an invoice."
    assert shown["annotations"] == {
        "destructiveHint": True, "idempotentHint": False, "openWorldHint": True,
    }  # fmt: skip


def test_definition_of_a_tool_without_options(server):
    server.tool(name="a")(lambda request: "x")
    shown = valid_catalog(server).tools["a"]._definition()
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
def test_hints_are_annotations(server, option, hint, value):
    server.tool(**{option: value})(add)
    assert valid_catalog(server).tools["add"]._definition()["annotations"] == {hint: value}


def test_default_options_of_a_tool():
    assert mcp.Tool.permission is mcp.AUTHENTICATED and mcp.Tool.atomic is True
    assert mcp.Tool.read_only is None


def test_implementation_calls_the_function_or_method(server):
    server.tool(add)
    server.register(Refund)
    tools = valid_catalog(server).tools
    assert tools["add"]._implementation(make_request(), a=1, b=2) == 3
    assert tools["refund"]._implementation(make_request(), amount=Decimal(1)) == {"amount": "1"}


def test_tool_without_a_return_annotation_has_no_output_schema(server):
    @server.tool
    def silent(request): ...

    assert "outputSchema" not in valid_catalog(server).tools["silent"]._definition()


# Checks.


def untyped(request, a): ...
def nameless(request, *names: str): ...
def unknown(request, a: "Nowhere"): ...  # noqa: F821
def no_request() -> str: ...
def odd_result(request) -> type("Odd", (), {}): ...
def odd_argument(request, a: type("Odd", (), {})): ...


@pytest.mark.parametrize(
    "function", [untyped, nameless, unknown, no_request, odd_result, odd_argument]
)
def test_signature_without_a_schema_is_an_error(server, function):
    server.tool(function)
    message = single_problem(server)
    assert message.id == "django_mcp.E020" and message.hint


def test_class_without_handle_is_an_error(server):
    server.register(type("Idle", (mcp.Tool,), {}))
    assert problem_ids(server) == ["E020"]
    with pytest.raises(NotImplementedError):
        mcp.Tool().handle(make_request())


@pytest.mark.parametrize("option", ["input_schema", "output_schema"])
@pytest.mark.parametrize("schema", [[], {"type": "nonsense"}, {"$ref": "http://a.example/s"}])
def test_invalid_handwritten_schema_is_an_error(server, option, schema):
    server.tool(name="a", **{option: schema})(lambda request, **anything: {})
    assert problem_ids(server) == ["E021"]


def test_input_and_output_schema_are_both_checked(server):
    server.tool(name="a", input_schema=[], output_schema=[])(lambda request: {})
    assert problem_ids(server) == ["E021", "E021"]


def test_input_schema_that_is_no_object_is_an_error(server):
    server.tool(name="a", input_schema={"type": "array"})(lambda request, **anything: {})
    assert single_problem(server).id == "django_mcp.E022"


def test_header_of_an_unsupported_type_is_an_error(server):
    @server.tool
    def ask(request, a: Annotated[float, mcp.Header("A")]) -> str:
        return "x"

    assert single_problem(server).id == "django_mcp.E023"


def test_read_only_and_destructive_tool_is_an_error(server):
    server.tool(read_only=True, destructive=True)(add)
    assert single_problem(server).id == "django_mcp.E024"


def test_atomic_with_an_unknown_database_is_an_error(server):
    server.tool(name="a", atomic="default")(add)
    server.tool(name="b", atomic=False)(add)
    server.tool(name="c", atomic="nowhere")(add)
    message = single_problem(server)
    assert message.id == "django_mcp.E025" and "'nowhere'" in message.msg
    assert "default" in message.hint


def test_schema_that_contradicts_the_signature_is_an_error(server):
    schema = {"type": "object", "properties": {"a": {}, "c": {}}}
    server.tool(input_schema=schema)(add)
    assert problem_ids(server) == ["E026", "E026"]


def test_async_tool_that_writes_and_asks_is_a_warning(server):
    @server.tool
    async def ask(request) -> str:
        return str(await request.aelicit("Sure?"))

    assert single_problem(server).id == "django_mcp.W028"


def test_handwritten_schema_is_published_verbatim(server):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    server.tool(input_schema=schema)(add)
    assert valid_catalog(server).tools["add"]._definition()["inputSchema"] == schema


def test_durable_must_be_a_bool(server):
    class Slow(Refund):
        durable = "yes"

    server.register(Slow)
    assert single_problem(server).id == "django_mcp.E060"


def test_durable_tool_is_valid(server):
    class Slow(Refund):
        durable = True

    server.register(Slow)
    assert valid_catalog(server).tools["slow"].durable


@pytest.mark.parametrize(
    "options",
    [{"atomic": False}, {"read_only": True, "destructive": None}, {"transactional": "yes"}],
)
def test_transactional_tool_without_a_transaction_is_an_error(server, options):
    server.register(type("Pure", (Refund,), {"transactional": True, **options}))
    assert single_problem(server).id == "django_mcp.E029"


def test_transactional_async_tool_is_an_error(server):
    class Pure(Refund):
        transactional = True

        async def handle(self, request) -> str:
            return "x"

    server.register(Pure)
    assert single_problem(server).id == "django_mcp.E029"


@pytest.mark.parametrize("log", ["default", "another"])
def test_transactional_tool_with_a_log_in_another_database_is_a_warning(server, settings, log):
    """There is no warning on SQLite, which may be only the database of a developer."""

    class Pure(Refund):
        transactional = True

    server.register(Pure)
    settings.DJANGO_MCP = {"DATABASE": log}
    if log == "default" or connection.vendor == "sqlite":
        assert valid_catalog(server).tools["pure"].transactional
    else:
        assert single_problem(server).id == "django_mcp.W029"
