"""Tools, as server/tools of each revision requires."""

import base64
import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from django.core.exceptions import ValidationError
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

import django_mcp as mcp
from django_mcp.calls import throttling
from django_mcp.declarations.server import default_server
from tests.shop.models import Customer, Invoice, Note

from .helpers import list_items, list_names, request_error, server_info, startup_errors

pytestmark = pytest.mark.django_db


def public(server, **options):
    return server.tool(permission=mcp.PUBLIC, read_only=True, **options)


# What a tool takes.


@pytest.fixture
def order(server):
    """A tool that remembers with what it ran."""
    ran = []

    @public(server)
    def order(
        request,
        what: Literal["tea", "cake"],
        pieces: Annotated[int, Field(ge=1, le=9)] = 1,
        note: str | None = None,
    ) -> str:
        ran.append((what, pieces, note))
        return "ordered"

    return ran


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "what"),
        ({"what": "beer"}, "what"),
        ({"what": None}, "what"),
        ({"what": "tea", "pieces": 0}, "pieces"),
        ({"what": "tea", "pieces": "2"}, "pieces"),
        ({"what": "tea", "pieces": 1.5}, "pieces"),
        ({"what": "tea", "pieces": True}, "pieces"),
        ({"what": "tea", "note": ["x"]}, "note"),
        ({"what": "tea", "request": 1}, "request"),
        ({"what": "tea", "admin": True}, "admin"),
    ],
)
def test_arguments_are_validated_before_the_tool_runs(
    connect, server, order, revision, arguments, named
):
    client = connect(server=server, revision=revision)
    assert named in client.failure("order", **arguments)
    assert order == []
    assert client.text("order", what="tea", pieces=2) == "ordered"
    assert order == [("tea", 2, None)]


@pytest.mark.parametrize("arguments", [[], ["tea"], "tea", 1, True])
def test_arguments_must_be_an_object(connect, server, order, revision, arguments):
    client = connect(server=server, revision=revision)
    refused = request_error(client, "tools/call", name="order", arguments=arguments)
    assert refused.code == -32602
    assert order == []


def test_every_tool_has_an_object_schema(connect, alice, revision):
    tools = list_items(connect(alice, revision=revision), "tools")
    assert len(tools) == len(default_server._catalog.tools)
    for tool in tools:
        Draft202012Validator.check_schema(tool["inputSchema"])
        assert tool["inputSchema"]["type"] == "object"
        assert tool["inputSchema"]["additionalProperties"] is False


def test_tool_without_arguments_accepts_only_an_empty_object(connect, server, revision):
    @public(server)
    def now(request) -> str:
        return "noon"

    client = connect(server=server, revision=revision)
    [tool] = list_items(client, "tools")
    assert tool["inputSchema"] == {"type": "object", "additionalProperties": False}
    assert client.request("tools/call", name="now")["content"][0]["text"] == "noon"
    assert client.text("now") == "noon"
    assert "x" in client.failure("now", x=1)


@pytest.mark.parametrize("schema", [{"type": "string"}, {}, {"type": ["object", "null"]}])
def test_input_schema_of_another_type_is_rejected_at_declaration(server, schema):
    @server.register
    class Odd(mcp.Tool):
        """Odd."""

        input_schema = schema

        def handle(self, request, **arguments): ...

    [problem] = startup_errors(server)
    assert "type object" in problem


# Names.


@pytest.mark.parametrize(
    "name", ["a", "Z9", "getUser", "DATA_EXPORT_v2", "admin.tools-list", "x" * 128]
)
def test_valid_tool_names_work(connect, server, revision, name):
    @public(server, name=name)
    def tool(request) -> str:
        return "it works"

    client = connect(server=server, revision=revision)
    assert list_names(client, "tools") == [name]
    assert client.text(name) == "it works"


@pytest.mark.parametrize(
    "name",
    [
        "x" * 129,
        "two words",
        "a,b",
        "a/b",
        "naïve",
        "a\n",
        "a:b",
        "ａ",
        "a%20b",
        "{a}",
        " a",
        "a\0",
    ],
)
def test_invalid_tool_name_is_rejected_at_declaration(server, name):
    @public(server, name=name)
    def tool(request) -> str: ...

    [problem] = startup_errors(server)
    assert repr(name) in problem


def test_tool_names_are_case_sensitive(connect, server, revision):
    def named(name):
        def tool(request) -> str:
            return name

        return tool

    for name in ("get", "Get"):
        public(server, name=name)(named(name))
    client = connect(server=server, revision=revision)
    assert (client.text("get"), client.text("Get")) == ("get", "Get")
    assert request_error(client, "tools/call", name="GET").code == -32602


def test_duplicate_tool_name_is_rejected(server):
    @public(server, name="greet")
    def hello(request) -> str: ...

    @public(server, name="greet")
    def goodbye(request) -> str: ...

    [problem] = startup_errors(server)
    assert all(part in problem for part in ("'greet'", "hello", "goodbye"))


def test_tool_with_the_name_of_a_search_tool_is_rejected(server):
    @server.register(Customer)
    class Customers(mcp.ModelResource):
        fields = ["name"]
        search_fields = ["name"]

    @public(server)
    def search_customer(request) -> str: ...

    assert any("'search_customer'" in problem for problem in startup_errors(server))


# Who may call, and how often.


@pytest.mark.parametrize(
    "permission", [None, mcp.AUTHENTICATED, "shop.add_note", lambda request: False]
)
def test_forbidden_tool_is_unknown(connect, server, bob, revision, permission):
    ran = []
    options = {} if permission is None else {"permission": permission}
    user = None if permission in (None, mcp.AUTHENTICATED) else bob

    @server.tool(**options)
    def hidden(request, key: int) -> str:
        ran.append(key)

    @public(server)
    def shown(request) -> str: ...

    client = connect(user, server=server, revision=revision)
    assert list_names(client, "tools") == ["shown"]
    again = request_error(client, "tools/call", name="hidden", arguments=[])
    assert again.message == request_error(client, "tools/call", name="hiding", arguments=[]).message
    refused = request_error(client, "tools/call", name="hidden", arguments={"key": 1})
    malformed = request_error(client, "tools/call", name="hidden", arguments={"key": "x"})
    unknown = request_error(client, "tools/call", name="hiding", arguments={})
    assert ran == []
    assert refused.code == malformed.code == unknown.code == -32602
    assert refused.message == malformed.message == unknown.message.replace("hiding", "hidden")
    assert refused.data is malformed.data is unknown.data is None


def test_inactive_user_is_treated_as_anonymous(connect, server, bob, revision):
    @server.tool
    def hidden(request) -> str: ...

    bob.is_active = False
    client = connect(bob, server=server, revision=revision)
    assert list_names(client, "tools") == []
    assert request_error(client, "tools/call", name="hidden").message == "Unknown tool: hidden"


def test_calls_are_rate_limited(connect, server, alice, bob, revision, settings):
    ran = []

    @public(server)
    def work(request) -> str:
        ran.append(request.user)
        return "done"

    number, seconds = throttling.process_rate("calls")  # without any setting
    assert 0 < number / seconds <= 1_000
    settings.DJANGO_MCP = {"THROTTLES": {"calls": "3/month"}}
    client = connect(alice, server=server, revision=revision)
    assert [client.text("work") for _ in range(3)] == ["done"] * 3
    assert "Try again in" in client.failure("work")
    again = connect(alice, server=server, revision=revision)
    assert "Try again in" in again.failure("work")
    assert "Try again in" in again.failure("no_such_tool")  # nor is it told what there is
    assert connect(bob, server=server, revision=revision).text("work") == "done"
    assert ran == [alice, alice, alice, bob]


# What a tool returns.


def test_resource_links_can_be_read(connect, server, revision):
    @server.resource("menu://today", permission=mcp.PUBLIC)
    def menu(request) -> str:
        return "Soup"

    @public(server)
    def where(request) -> list[Any]:
        return [mcp.ResourceLink("menu://today", "menu", mime_type="text/plain")]

    client = connect(server=server, revision=revision)
    [block] = client.call("where")["content"]
    if revision < "2025-06-18":  # which have no links: it is told in words
        assert block == {"type": "text", "text": "menu: menu://today"}
    else:
        link = {"uri": "menu://today", "name": "menu", "mimeType": "text/plain"}
        assert block == {"type": "resource_link", **link}
    assert client.request("resources/read", uri="menu://today")["contents"][0]["text"] == "Soup"


def test_resources_are_embedded(connect, server, revision):
    @public(server)
    def both(request) -> list[mcp.EmbeddedResource]:
        return [
            mcp.EmbeddedResource("menu://today", "Soup"),
            mcp.EmbeddedResource("menu://logo", b"\x89PNG", "image/png"),
        ]

    first, second = connect(server=server, revision=revision).call("both")["content"]
    text = {"uri": "menu://today", "mimeType": "text/plain", "text": "Soup"}
    blob = base64.b64encode(b"\x89PNG").decode()
    assert first == {"type": "resource", "resource": text}
    assert second["resource"] == {"uri": "menu://logo", "mimeType": "image/png", "blob": blob}


@pytest.mark.parametrize(
    "annotation",
    [
        mcp.EmbeddedResource,
        list[mcp.EmbeddedResource],
        str | mcp.EmbeddedResource,
        list[str | mcp.EmbeddedResource] | None,
    ],
)
def test_embedding_tool_declares_the_resources_capability(connect, server, revision, annotation):
    def menu(request):
        return mcp.EmbeddedResource("menu://today", "Soup")

    menu.__annotations__["return"] = annotation
    public(server)(menu)
    client = connect(server=server, revision=revision, initialize=False)
    assert "resources" in server_info(client)["capabilities"]
    assert list_items(client, "resources") == list_items(client, "templates") == []


class Person(BaseModel):
    name: str
    age: int | None = None


@dataclass
class Sum:
    amount: Decimal
    due: date
    kind: Literal["in", "out"] = "in"


class Point(TypedDict):
    x: float
    y: float


class Pair(NamedTuple):
    left: int
    right: str


STRUCTURES = [
    (int, 3),
    (float, 0.5),
    (bool, True),
    (Decimal, Decimal("12.50")),
    (dict[str, int], {"a": 1}),
    (dict, {"a": [1, None]}),
    (list[int], [1, 2]),
    (list[str], ["a", "b"]),
    (list[Person], [Person(name="Ada")]),
    (Person, Person(name="Ada", age=36)),
    (Person | None, None),
    (Sum, Sum(Decimal("1.10"), date(2026, 1, 2))),
    (Point, {"x": 1.0, "y": -2.5}),
    (Pair, Pair(1, "r")),
    (int | str, "x"),
    (Literal["a", "b"], "b"),
    (set[int], {1}),
    (tuple[int, str], (1, "x")),
    (date | None, date(2026, 1, 2)),
]


def returning(server, annotation, value, *, name="give"):
    def give(request):
        return value

    give.__annotations__["return"] = annotation
    public(server, name=name)(give)


@pytest.mark.parametrize(("annotation", "value"), STRUCTURES)
def test_structured_content_matches_its_schema_and_is_sent_as_text(
    connect, server, revision, annotation, value
):
    returning(server, annotation, value)
    client = connect(server=server, revision=revision)
    [tool] = list_items(client, "tools")
    result = client.call("give")
    [block] = result["content"]
    if revision < "2025-06-18":
        assert "outputSchema" not in tool and "structuredContent" not in result
        return
    content = result["structuredContent"]
    Draft202012Validator(tool["outputSchema"]).validate(content)
    if revision < "2026-07-28" and not isinstance(value, dict | BaseModel | Sum):
        content = content["result"]  # where structured content is always an object
    assert block["text"] == content or json.loads(block["text"]) == content


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "x"),
        (int, None),
        (list[int], [1, "x"]),
        (Person, {"age": 1}),
        (dict[str, int], {"a": "x"}),
        (Literal["a"], "b"),
        (Sum, None),
        (list[Customer], [Note(text="no customer")]),
    ],
)
def test_result_that_violates_its_schema_is_not_sent(connect, server, revision, annotation, value):
    if annotation == list[Customer]:
        open_customers(server)
    returning(server, annotation, value)
    result = connect(server=server, revision=revision).call("give")
    assert result["isError"] is True and "structuredContent" not in result
    assert [block["type"] for block in result["content"]] == ["text"]


def test_result_is_checked_against_a_handwritten_schema(connect, server, revision):
    @server.register
    class Give(mcp.Tool):
        """Give."""

        permission = mcp.PUBLIC
        output_schema = {
            "type": "object",
            "properties": {"n": {"type": "integer", "multipleOf": 2}},
            "required": ["n"],
        }

        def handle(self, request, n: int) -> Any:
            return {"n": n}

    client = connect(server=server, revision=revision)
    [tool] = list_items(client, "tools")
    result = client.call("give", n=2)
    if revision >= "2025-06-18":
        assert tool["outputSchema"] == Give.output_schema
        assert result["structuredContent"] == {"n": 2}
    assert json.loads(result["content"][0]["text"]) == {"n": 2}
    assert client.call("give", n=3)["isError"] is True


def open_customers(server):
    @server.register(Customer)
    class Customers(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["company", "name", "email", "referred_by"]
        search_fields = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request)


def test_rows_match_their_generated_schema(connect, server, invoice, revision):
    open_customers(server)
    returning(server, Customer, invoice.customer, name="one")
    returning(server, list[Customer], Customer.objects.all(), name="many")
    returning(server, Customer | None, None, name="none")
    client = connect(server=server, revision=revision)
    schemas = {tool["name"]: tool.get("outputSchema") for tool in list_items(client, "tools")}
    for name in ("one", "many", "none", "search_customer"):
        result = client.call(name)
        assert result["isError"] is False
        if revision >= "2025-06-18" and name != "search_customer":  # it has no schema of results
            Draft202012Validator(schemas[name]).validate(result["structuredContent"])


# What must not get out.


class Vault:
    def __init__(self):
        self.secret = "hunter2"

    def __repr__(self):
        return f"<Vault {self.secret}>"


SECRETS = (
    "hunter2",
    "never pays",
    "/srv/media",
    "invoices/",
    "pbkdf2",
    "RuntimeError",
    "Traceback",
)


@pytest.mark.parametrize(
    "leak",
    [
        lambda invoice: Vault(),
        lambda invoice: {"vault": Vault()},
        lambda invoice: [1, Vault()],
        lambda invoice: invoice,
        lambda invoice: {"row": invoice},
        lambda invoice: Invoice.objects.all(),
        lambda invoice: {"rows": list(Invoice.objects.all())},
        lambda invoice: invoice.attachment,
        lambda invoice: {"file": invoice.attachment},
        lambda invoice: invoice._state,
        lambda invoice: invoice.__dict__,
    ],
)
def test_value_without_a_public_form_is_not_returned(
    connect, server, invoice, revision, leak, settings, caplog
):
    settings.MEDIA_ROOT = "/srv/media"
    invoice.attachment = "invoices/hunter2.pdf"
    returning(server, None, leak(invoice))
    client = connect(server=server, revision=revision)
    result = client.call("give")
    assert result["isError"] is True
    assert not any(secret in json.dumps(result) for secret in SECRETS)
    assert caplog.records  # the developer is told


@pytest.mark.parametrize(
    "shown",
    [
        lambda customer: customer,
        lambda customer: [customer],
        lambda customer: {"customer": customer},
        lambda customer: {"customers": Customer.objects.all()},
        lambda customer: Customer.objects.all(),
    ],
)
def test_row_is_returned_with_its_declared_fields_only(connect, server, invoice, revision, shown):
    open_customers(server)
    returning(server, None, shown(invoice.customer))
    result = connect(server=server, revision=revision).call("give")
    assert result["isError"] is False
    assert "Carla" in json.dumps(result) and "never pays" not in json.dumps(result)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("hunter2"),
        KeyError("hunter2"),
        FileNotFoundError(2, "No such file", "/srv/media/x"),
        Invoice.DoesNotExist("hunter2"),
        AssertionError(Path("/srv/media")),
    ],
)
def test_unexpected_exception_is_masked(connect, server, revision, error, caplog):
    @public(server)
    def fail(request) -> str:
        raise error

    result = connect(server=server, revision=revision).call("fail")
    assert result["isError"] is True
    assert not any(secret in json.dumps(result) for secret in SECRETS)
    assert caplog.records[-1].exc_info[1] is error


# Errors.


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (mcp.ToolError("Not on a Sunday."), "Not on a Sunday."),
        (ValidationError({"name": "Too long."}), "name: Too long."),
        (ZeroDivisionError("division by zero"), "Something went wrong"),
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_tool_error_is_a_result_with_is_error(
    connect, server, revision, error, words, asynchronous
):
    if asynchronous:

        async def fail(request) -> dict[str, int]:
            raise error
    else:

        def fail(request) -> dict[str, int]:
            raise error

    public(server)(fail)
    result = connect(server=server, revision=revision).call("fail")
    assert result["isError"] is True and words in result["content"][0]["text"]


# Headers.


def with_schema(server, properties, **more):
    @server.register
    class Tool(mcp.Tool):
        """Do."""

        name = "do"
        permission = mcp.PUBLIC
        read_only = True
        input_schema = {"type": "object", "properties": properties} | more

        def handle(self, request, **arguments) -> str:
            return "done"


def test_argument_may_be_mirrored_in_a_header(connect, server, revision):
    @public(server)
    def query(
        request,
        region: Annotated[str, mcp.Header("Region")],
        shard: Annotated[int, mcp.Header("Shard")] = 0,
        dry: Annotated[bool, mcp.Header("Dry-Run")] = False,
        other: str = "",
    ) -> str:
        return region

    client = connect(server=server, revision=revision)
    [tool] = list_items(client, "tools")
    properties = tool["inputSchema"]["properties"]
    marked = {name: prop.get("x-mcp-header") for name, prop in properties.items()}
    assert marked == {"region": "Region", "shard": "Shard", "dry": "Dry-Run", "other": None}
    assert client.text("query", region="eu", shard=3, dry=True) == "eu"


def test_nested_property_may_be_mirrored_in_a_header(connect, server):
    place = {"type": "object", "properties": {"id": {"type": "string", "x-mcp-header": "Place"}}}
    with_schema(server, {"place": place})
    [tool] = list_items(connect(server=server), "tools")
    assert tool["inputSchema"]["properties"]["place"] == place


NO_TOKENS = [
    "",
    " ",
    "a b",
    "a\r\nb",
    "a\n",
    "a\x00",
    "a\x7f",
    "ü",
    "a:b",
    "a/b",
    "(a)",
    '"a"',
    "a,b",
]


@pytest.mark.parametrize("name", NO_TOKENS)
def test_header_name_must_be_a_token(server, name):
    @public(server)
    def query(request, region: Annotated[str, mcp.Header(name)]) -> str: ...

    [problem] = startup_errors(server)
    assert "region" in problem and "header" in problem


@pytest.mark.parametrize("name", [*NO_TOKENS, None, 1, ["Region"]])
def test_handwritten_header_name_must_be_a_token(server, name):
    with_schema(server, {"region": {"type": "string", "x-mcp-header": name}})
    [problem] = startup_errors(server)
    assert "region" in problem and "header" in problem


@pytest.mark.parametrize(("first", "second"), [("Region", "Region"), ("Region", "rEGION")])
def test_duplicate_header_name_is_rejected(server, first, second):
    @public(server)
    def query(
        request, a: Annotated[str, mcp.Header(first)], b: Annotated[str, mcp.Header(second)]
    ) -> str: ...

    [problem] = startup_errors(server)
    assert "'region' is used twice" in problem


@pytest.mark.parametrize(
    "annotation",
    [float, Decimal, list[str], dict[str, str], str | int, str | None, Person, Any],
)
def test_only_plain_arguments_may_be_mirrored_in_a_header(server, annotation):
    def query(request, a): ...

    query.__annotations__["a"] = Annotated[annotation, mcp.Header("A")]
    public(server)(query)
    [problem] = startup_errors(server)
    assert "must be a string, integer or boolean, and not null" in problem


@pytest.mark.parametrize("type", ["number", "array", "object", "null", ["string", "null"], None])
def test_only_plain_properties_may_be_mirrored_in_a_header(server, type):
    prop = {"x-mcp-header": "A"} | ({"type": type} if type else {})
    with_schema(server, {"a": prop})
    [problem] = startup_errors(server)
    assert "must be a string, integer or boolean, and not null" in problem


SAFE = 2**53 - 1


def test_integer_arguments_in_headers_are_limited_to_safe_integers(connect, server, revision):
    @public(server)
    def at(request, place: Annotated[int, mcp.Header("Place")], other: int = 0) -> str:
        return str(place)

    client = connect(server=server, revision=revision)
    [tool] = list_items(client, "tools")
    prop = tool["inputSchema"]["properties"]["place"]
    assert (prop["minimum"], prop["maximum"]) == (-SAFE, SAFE)
    assert client.text("at", place=SAFE, other=SAFE + 1) == str(SAFE)
    assert client.text("at", place=-SAFE) == str(-SAFE)
    assert "place" in client.failure("at", place=SAFE + 1)
    assert "place" in client.failure("at", place=-SAFE - 1)


def test_declared_bounds_of_header_integers_are_kept(connect, server):
    @public(server)
    def at(
        request,
        low: Annotated[int, mcp.Header("Low"), Field(ge=0)],
        wide: Annotated[int, Field(lt=10**40), mcp.Header("Wide")] = 0,
    ) -> str:
        return "there"

    client = connect(server=server)
    properties = list_items(client, "tools")[0]["inputSchema"]["properties"]
    assert (properties["low"]["minimum"], properties["low"]["maximum"]) == (0, SAFE)
    assert properties["wide"]["minimum"] == -SAFE
    assert "low" in client.failure("at", low=-1)
    assert "low" in client.failure("at", low=SAFE + 1)
    assert "wide" in client.failure("at", low=0, wide=SAFE + 1)
    assert client.text("at", low=0, wide=SAFE) == "there"


def test_handwritten_header_integers_are_limited_to_safe_integers(connect, server):
    inner = {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}
    with_schema(server, {"inner": inner, "free": {"type": "integer"}})
    client = connect(server=server)
    assert client.text("do", inner={"n": SAFE}, free=SAFE + 1) == "done"
    assert "inner.n" in client.failure("do", inner={"n": SAFE + 1})
    assert client.text("do") == "done"


MARKED = {"type": "string", "x-mcp-header": "Region"}


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"type": "array", "items": MARKED}},
        {"a": {"type": "array", "prefixItems": [MARKED]}},
        {"a": {"type": "array", "contains": MARKED}},
        {"a": {"anyOf": [MARKED, {"type": "null"}]}},
        {"a": {"oneOf": [{"type": "object", "properties": {"b": MARKED}}]}},
        {"a": {"allOf": [MARKED]}},
        {"a": {"not": MARKED}},
        {"a": {"if": MARKED, "then": {}, "else": {}}},
        {"a": {"if": {}, "then": MARKED}},
        {"a": {"if": {}, "else": {"properties": {"b": MARKED}}}},
        {"a": {"type": "object", "additionalProperties": MARKED}},
        {"a": {"type": "object", "patternProperties": {"^b": MARKED}}},
        {"a": {"type": "object", "dependentSchemas": {"b": {"properties": {"c": MARKED}}}}},
    ],
)
def test_header_is_allowed_only_below_properties(server, properties):
    with_schema(server, properties)
    [problem] = startup_errors(server)
    assert "mirror only a property" in problem


@pytest.mark.parametrize("more", [{"$defs": {"a": MARKED}}, {"x-mcp-header": "Region"}])
def test_header_in_a_definition_or_the_root_is_rejected(server, more):
    with_schema(server, {"a": {"$ref": "#/$defs/a"}}, **({"$defs": {"a": {}}} | more))
    [problem] = startup_errors(server)
    assert "mirror only a property" in problem


@pytest.mark.parametrize(
    "name",
    ["password", "api_key", "apiKey", "token", "accessToken", "client_secret", "passwd", "email"],
)
def test_argument_that_looks_like_a_secret_may_not_be_mirrored(server, name):
    with_schema(server, {name: MARKED})
    [problem] = startup_errors(server)
    assert name in problem and "looks like a secret" in problem


@pytest.mark.parametrize("name", ["region", "token_count", "tenant", "passage", "secretary"])
def test_argument_that_is_not_a_secret_may_be_mirrored(server, name):
    with_schema(server, {name: MARKED})
    assert server.check() == []
