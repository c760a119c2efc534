"""Arguments that clients repeat in HTTP headers (``mcp.Header``)."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

import django_mcp as mcp
from django_mcp.declarations.arguments import (
    SAFE_INTEGER,
    header_problems,
    mirrored_properties,
    value_at,
)
from django_mcp.exceptions import InvalidArguments
from tests.shop.models import Customer

from .helpers import problem_ids, single_problem, valid_catalog

REGION = {"type": "string", "x-mcp-header": "Region"}


def schema(**properties):
    return {"type": "object", "properties": properties}


def object_schema(**properties):
    return {"type": "object", "properties": properties}


def test_header_argument_is_marked_in_the_schema(server):
    @server.tool
    def ask(
        request,
        region: Annotated[str, mcp.Header("Region")],
        size: Annotated[int, mcp.Header("X-Size"), Field(ge=1)] = 1,
        dry: Annotated[bool, mcp.Header("Dry")] = False,
    ) -> str:
        return region

    properties = valid_catalog(server).tools["ask"]._arguments.schema["properties"]
    assert properties["region"] == REGION
    assert properties["size"] == {
        "type": "integer", "minimum": 1, "maximum": SAFE_INTEGER, "default": 1,
        "x-mcp-header": "X-Size",
    }  # fmt: skip
    assert properties["dry"]["x-mcp-header"] == "Dry"


def test_headers_of_nested_properties(server):
    written = schema(
        region=REGION, place=object_schema(city={"type": "string", "x-mcp-header": "City"})
    )
    server.tool(input_schema=written)(function)
    arguments = valid_catalog(server).tools["function"]._arguments
    assert arguments.headers == {("region",): "Region", ("place", "city"): "City"}


def function(request, **anything) -> str:
    return "x"


def test_header_argument_with_a_model_is_a_string(server, alice):
    """A row is named by key or URI, but a header argument has one type."""

    class Rows(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["name"]

        def get_queryset(self, request):
            return Customer.objects.all()

    server.register(Customer, Rows)

    @server.tool
    def visit(request, customer: Annotated[Customer, mcp.Header("Customer")]) -> str:
        return "done"

    arguments = valid_catalog(server).tools["visit"]._arguments
    prop = arguments.schema["properties"]["customer"]
    assert prop["type"] == "string" and prop["x-mcp-header"] == "Customer"
    assert arguments.read({"customer": "5"}) == {"customer": "5"}


def test_integer_beyond_the_safe_range_is_refused(server):
    @server.tool
    def ask(request, size: Annotated[int, mcp.Header("Size")]) -> str:
        return str(size)

    arguments = valid_catalog(server).tools["ask"]._arguments
    assert arguments.read({"size": SAFE_INTEGER}) == {"size": SAFE_INTEGER}
    with pytest.raises(InvalidArguments, match=f"size: must be an integer from -{SAFE_INTEGER}"):
        arguments.read({"size": SAFE_INTEGER + 1})


def test_integer_of_a_handwritten_schema_beyond_the_safe_range_is_refused(server):
    size = {"type": "integer", "x-mcp-header": "Size"}
    server.tool(input_schema=schema(of=object_schema(size=size)))(function)
    arguments = valid_catalog(server).tools["function"]._arguments
    with pytest.raises(InvalidArguments, match=r"of\.size"):
        arguments.read({"of": {"size": -(SAFE_INTEGER + 1)}})
    assert arguments.read({"of": {}}) == {"of": {}}
    assert arguments.schema["properties"]["of"]["properties"]["size"] == size  # as it was written


def test_value_at_a_path():
    assert value_at(("a", "b"), {"a": {"b": 1}}) == 1
    assert value_at(("a", "b"), {"a": 5}) is None and value_at(("a",), {}) is None


@pytest.mark.parametrize("name", ["", "a b", "ä", "a:b", "a\r\nSet-Cookie: x", "a\n", 7, None])
def test_invalid_header_name_is_a_problem(name):
    (words,) = header_problems(schema(a={"type": "string", "x-mcp-header": name}))
    assert "not a valid HTTP header name" in words


@pytest.mark.parametrize(
    "type", ["number", "array", "object", "null", ["string", "null"], ["string"], None]
)
def test_unsupported_type_of_a_header_argument_is_a_problem(type):
    (words,) = header_problems(schema(a={"type": type, "x-mcp-header": "A"}))
    assert "must be a string, integer or boolean" in words


@pytest.mark.parametrize("name", ["password", "api_key", "apiKey", "access_token", "email"])
def test_header_argument_that_looks_like_a_secret_is_a_problem(name):
    (words,) = header_problems(schema(**{name: {"type": "string", "x-mcp-header": "A"}}))
    assert "looks like a secret" in words


def test_same_header_for_two_arguments_is_a_problem():
    other = {"type": "string", "x-mcp-header": "REGION"}
    (words,) = header_problems(schema(a=REGION, b=object_schema(c=other)))
    assert words == "The header 'region' is used twice."


@pytest.mark.parametrize(
    "part",
    [
        {"type": "array", "items": REGION},
        {"anyOf": [REGION, {"type": "null"}]},
        {"type": "object", "additionalProperties": REGION},
        {"type": "object", "patternProperties": {"a": REGION}},
        {"$ref": "#/$defs/region"},
    ],
)
def test_header_outside_of_plain_properties_is_a_problem(part):
    written = schema(a=part) | {"$defs": {"region": REGION}}
    (words,) = header_problems(written)
    assert "mirror only a property" in words


def test_header_mentioned_in_a_description_is_ignored():
    written = schema(a={"type": "string", "description": 'mirrored by "x-mcp-header": "A"'})
    assert header_problems(written) == [] and mirrored_properties(written) == []


def test_problems_of_header_arguments_are_check_errors(server):
    class Place(BaseModel):
        city: str

    @server.tool
    def first(request, region: Annotated[str, mcp.Header("a b")]) -> str:
        return region

    @server.tool
    def second(request, region: Annotated[str | None, mcp.Header("Region")] = None) -> str:
        return ""

    @server.tool
    def third(request, region: Annotated[str, mcp.Header("Region")] | None = None) -> str:
        return ""

    @server.tool
    def fourth(request, place: Annotated[Place, mcp.Header("Place")]) -> str:
        return ""

    @server.tool
    def fifth(request, region: Annotated[Literal["eu", "us"], mcp.Header("Region")]) -> str:
        return region

    assert problem_ids(server) == ["E023"] * 4 and list(server._catalog.tools) == ["fifth"]


def test_check_message_has_a_hint(server):
    @server.tool
    def ask(request, amount: Annotated[float, mcp.Header("Amount")]) -> str:
        return ""

    message = single_problem(server)
    assert message.id == "django_mcp.E023" and "mcp.Header" in message.hint
