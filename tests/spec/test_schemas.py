"""JSON Schemas of tools, as basic, "JSON Schema Usage" requires."""

import threading
from datetime import date
from enum import Enum
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

import django_mcp as mcp
from django_mcp.declarations import schemas
from django_mcp.declarations.server import default_server

from .helpers import list_items, startup_errors

pytestmark = pytest.mark.django_db
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def tool(server, schema, *, output=False):
    """A tool whose arguments, or whose result, are of ``schema``: as one property ``it``."""
    written = {"type": "object", "properties": {"it": {}}} | schema

    @server.register
    class Try(mcp.Tool):
        """Try."""

        permission = mcp.PUBLIC
        read_only = True
        input_schema = None if output else written
        output_schema = written if output else None

        if output:

            def handle(self, request, it: dict | list | str | int | float | None = None):
                return {"it": it}
        else:

            def handle(self, request, **arguments):
                return "fits"


def fits(client, value):
    return not client.call("try", it=value).get("isError")


def of(keywords, **more):
    return {"properties": {"it": keywords}} | more


# Keywords, some of which are new in 2020-12 or mean something else there: what fits, what does not.
KEYWORDS = [
    ({"prefixItems": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], ["a", 1]),
    ({"prefixItems": [{}], "items": False}, [1], [1, 2]),
    ({"prefixItems": [{}], "unevaluatedItems": {"type": "string"}}, [1, "a"], [1, 2]),
    ({"contains": {"const": 1}, "minContains": 2, "maxContains": 3}, [1, 1], [1, 2]),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 2}, {"a": 1}),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1, "b": 2}, {"a": 1}),
    ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"a": 1}, {"b": 1}),
    ({"propertyNames": {"pattern": "^[a-z]+$"}}, {"a": 1}, {"A": 1}),
    ({"patternProperties": {"^n": {"type": "integer"}}}, {"n1": 1}, {"n1": "a"}),
    ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 2}}, "ab", 1),
    ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 1, 3),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, "x"),
    ({"not": {"type": "string"}}, 1, "x"),
    ({"exclusiveMinimum": 1, "exclusiveMaximum": 3, "multipleOf": 0.5}, 1.5, 1),
    ({"type": ["string", "null"], "pattern": "^a", "maxLength": 3}, "abc", "abcd"),
    ({"enum": ["a", 1, None]}, None, "b"),
    ({"const": {"a": [1]}}, {"a": [1]}, {"a": [2]}),
    ({"type": "array", "uniqueItems": True, "minItems": 1}, [1, 2], [1, 1]),
    ({"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}},
     {"a": "b"}, {"a": 1}),
]  # fmt: skip
POINTERS = [
    (of({"$ref": "#/$defs/n"}, **{"$defs": {"n": {"type": "integer"}}}), 1, "x"),
    (of({"$ref": "#n"}, **{"$defs": {"x": {"$anchor": "n", "type": "integer"}}}), 1, "x"),
    (of({"$ref": "#/$defs/n", "minimum": 2}, **{"$defs": {"n": {"type": "integer"}}}), 2, 1),
    (of({"$dynamicRef": "#n"}, **{"$defs": {"x": {"$dynamicAnchor": "n", "type": "null"}}}),
     None, 1),
]  # fmt: skip


@pytest.mark.parametrize("schema", [None, DRAFT])
@pytest.mark.parametrize(
    ("keywords", "good", "bad"), [*((of(k), g, b) for k, g, b in KEYWORDS), *POINTERS]
)
def test_input_schema_is_interpreted_as_2020_12(connect, server, schema, keywords, good, bad):
    tool(server, keywords | ({"$schema": schema} if schema else {}))
    client = connect(server=server)
    assert fits(client, good)
    assert not fits(client, bad)


@pytest.mark.parametrize(("keywords", "good", "bad"), KEYWORDS[:4])
def test_output_schema_is_interpreted_as_2020_12(connect, server, revision, keywords, good, bad):
    tool(server, of(keywords), output=True)
    client = connect(server=server, revision=revision)
    assert fits(client, good)
    assert not fits(client, bad)


@pytest.mark.parametrize(
    ("dialect", "keywords", "good", "bad"),
    [
        ("http://json-schema.org/draft-07/schema#", {"dependencies": {"a": ["b"]}},
         {"a": 1, "b": 2}, {"a": 1}),
        ("http://json-schema.org/draft-07/schema#",
         {"items": [{"type": "integer"}], "additionalItems": False}, [1], [1, 2]),
        ("http://json-schema.org/draft-07/schema", {"prefixItems": "nothing, there"}, [1], 0),
        ("http://json-schema.org/draft-06/schema#", {"contains": {"const": 1}}, [1], [2]),
        ("http://json-schema.org/draft-04/schema#", {"minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ("https://json-schema.org/draft/2019-09/schema",
         {"items": [{"type": "integer"}], "unevaluatedItems": False}, [1], [1, 2]),
    ],
)  # fmt: skip
def test_schema_is_interpreted_in_its_declared_dialect(
    connect, server, revision, dialect, keywords, good, bad
):
    if bad == 0:
        keywords = keywords | {"type": "array"}
    tool(server, of(keywords, **{"$schema": dialect}))
    client = connect(server=server, revision=revision)
    assert list_items(client, "tools")[0]["inputSchema"]["$schema"] == dialect
    assert fits(client, good)
    assert not fits(client, bad)


# What is refused when declared.


@pytest.mark.parametrize("output", [False, True])
@pytest.mark.parametrize(
    "schema",
    [
        of({"type": "text"}),
        of({"type": 1}),
        of({"required": "a"}),
        of({"minimum": "1"}),
        of({"enum": "a"}),
        of({"pattern": "("}),
        of({"items": [{}]}),  # 2020-12 has prefixItems for that
        of({"minimum": 1, "exclusiveMinimum": True}),  # as draft 4 would have it
        of({"allOf": []}),
        of(1),
        {"properties": []},
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "properties": {"a": {"minimum": "1"}},
        },
    ],
)
def test_schema_invalid_in_its_dialect_is_rejected(server, schema, output):
    tool(server, schema, output=output)
    [problem] = startup_errors(server)
    assert "JSON Schema is not valid" in problem


@pytest.mark.parametrize("output", [False, True])
@pytest.mark.parametrize(
    "dialect",
    ["https://shop.example/schema", "http://json-schema.org/draft-99/schema#", "draft-07", "", 7],
)
def test_unknown_dialect_is_rejected_by_name(server, dialect, output):
    tool(server, {"$schema": dialect}, output=output)
    [problem] = startup_errors(server)
    assert repr(dialect) in problem and "not supported" in problem


ELSEWHERE = [
    "https://shop.example/schema.json",
    "http://127.0.0.1/schema.json#/x",
    "file:///etc/passwd",
    "//shop.example/schema.json",
    "schema.json",
    "/schema.json",
    "schema.json#/$defs/x",
    "urn:example:schema",
    "",
]


@pytest.mark.parametrize("output", [False, True])
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
@pytest.mark.parametrize("reference", ELSEWHERE)
def test_external_reference_is_rejected(server, keyword, reference, output):
    tool(server, of({"anyOf": [{keyword: reference}, {}]}), output=output)
    [problem] = startup_errors(server)
    assert "documents are never fetched" in problem


@pytest.mark.parametrize("reference", ["#/$defs/none", "#none", "#/properties/it/x"])
def test_unresolvable_reference_is_rejected(server, reference):
    tool(server, of({"anyOf": [{}, {"$ref": reference}]}))
    [problem] = startup_errors(server)
    assert repr(reference) in problem and "has nothing at the reference" in problem


@pytest.fixture
def web():
    """A web server that would give away a schema, and remembers who asked."""
    asked = []

    class Giving(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *args): ...

    serving = HTTPServer(("127.0.0.1", 0), Giving)
    thread = threading.Thread(target=serving.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{serving.server_port}", asked
    serving.shutdown()
    serving.server_close()
    thread.join()


def test_schemas_are_never_fetched(web):
    origin, asked = web
    for schema in (
        {"$ref": f"{origin}/a"},
        {"$dynamicRef": f"{origin}/b#c"},
        {"$id": f"{origin}/d", "$ref": "e"},
        {"$id": f"{origin}/f", "properties": {"x": {"$ref": "g#/h"}}},
    ):
        assert "documents are never fetched" in schemas.problem(schema)
        # Even if one came by another way, it is an error and lets nothing through.
        with pytest.raises(Exception, match="(?i)unresolvable|no such|pointer|retriev"):
            schemas.violations(schema, {"x": 1})
    assert "not supported" in schemas.problem({"$schema": f"{origin}/i"})
    assert asked == []


# What it may cost.


def nested(depth, *keys):
    schema = {}
    for _ in range(depth):
        for key in keys or ["not"]:
            schema = {key: schema}
    return schema


def circle():
    schema = {}
    schema["not"] = schema
    return schema


@pytest.mark.parametrize("output", [False, True])
@pytest.mark.parametrize(
    "schema",
    [
        of(nested(schemas.MAX_DEPTH)),
        of(nested(100_000)),
        of(nested(50_000, "it", "properties")),
        of({"anyOf": [{"minimum": number} for number in range(schemas.MAX_SUBSCHEMAS)]}),
        {"$defs": {f"d{number}": {} for number in range(schemas.MAX_SUBSCHEMAS)}},
        of(circle()),
    ],
    ids=["deep", "deeper", "inner", "wide", "many", "endless"],
)
def test_size_and_depth_of_a_schema_are_limited(server, schema, output):
    tool(server, schema, output=output)
    [problem] = startup_errors(server)
    assert "more than 2000 parts" in problem and "more than 40 levels" in problem


def test_schema_within_the_limits_works(connect, server):
    wide = {"anyOf": [{"const": number} for number in range(500)]}
    tool(server, of({"allOf": [nested(30), wide]}))
    client = connect(server=server)
    assert fits(client, 499) and not fits(client, 500)


# What we write ourselves.


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Part(BaseModel):
    name: str
    parts: list["Part"] = []


def test_generated_schemas_are_2020_12(connect, server, alice, revision):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def build(
        request,
        pair: tuple[int, str],
        size: Size,
        part: Part,
        kinds: dict[Literal["a", "b"], int],
        day: date | None = None,
    ) -> Part:
        """Build."""
        return part

    [shown] = list_items(connect(server=server, revision=revision), "tools")
    assert shown["inputSchema"]["properties"]["pair"]["prefixItems"]
    assert "$defs" in shown["inputSchema"]
    tools = [shown, *list_items(connect(alice, revision=revision), "tools")]
    assert len(tools) == 1 + len(default_server._catalog.tools)
    for one in tools:
        for schema in (one["inputSchema"], one.get("outputSchema", {})):
            assert schema.get("$schema", DRAFT) == DRAFT
            Draft202012Validator.check_schema(schema)
            assert "definitions" not in schema
