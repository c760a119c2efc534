"""The arguments of a function: the schema that is published, and the strict reading of it."""

import enum
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.utils.timezone import override
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AwareDatetime,
    Base64Bytes,
    Base64Str,
    Base64UrlBytes,
    BaseModel,
    Field,
    NaiveDatetime,
    SecretBytes,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

import django_mcp as mcp
from django_mcp.declarations.arguments import Arguments, arguments_of
from django_mcp.declarations.schemas import problem, violations
from django_mcp.exceptions import InvalidArguments
from tests.shop.models import Company, Customer, Invoice

from .world import ids, only, right


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Person(BaseModel):
    name: str
    age: Annotated[int, Field(ge=0)] = 0


@dataclass
class Point:
    x: float
    y: float = 0.0


class Box(TypedDict):
    width: int


def no_model(model, chosen):
    raise ImproperlyConfigured("none is registered")


def of(function, schema=None) -> Arguments:
    return arguments_of(function, no_model, schema=schema)


def one(annotation, default=...) -> Arguments:
    """The arguments of a function that takes just ``a``."""

    def function(request, a): ...

    function.__annotations__["a"] = annotation
    function.__defaults__ = () if default is ... else (default,)
    return of(function)


def refusal(arguments, given, read="read") -> str:
    with pytest.raises(InvalidArguments) as refused:
        getattr(arguments, read)(given)
    assert refused.value.message.startswith("Invalid arguments. ")
    return refused.value.message.removeprefix("Invalid arguments. ")


# The schema.


def test_no_arguments():
    def function(request): ...

    arguments = of(function)
    assert arguments.schema == {"type": "object", "additionalProperties": False}
    assert arguments.read({}) == {} and not arguments.binds and arguments.headers == {}


def test_a_schema():
    def function(
        request,
        name: str,
        size: Size,
        person: Person,
        at: Point | None = None,
        amount: Annotated[Decimal, Field(gt=0, description="In euros.")] = Decimal("1.50"),
        *,
        tone: Literal["kind", "firm"] = "kind",
    ):
        """Do it.

        Args:
            name: Whose.
            amount: Not this.
        """

    schema = of(function).schema
    assert schema["required"] == ["name", "size", "person"]
    assert schema["additionalProperties"] is False and "title" not in schema
    properties = schema["properties"]
    assert properties["name"] == {"type": "string", "description": "Whose."}
    assert properties["size"] == {"$ref": "#/$defs/Size"}
    assert schema["$defs"]["Size"] == {"enum": ["s", "l"], "type": "string"}
    assert properties["amount"]["description"] == "In euros."
    assert properties["amount"]["default"] == "1.50"
    assert properties["tone"] == {"enum": ["kind", "firm"], "type": "string", "default": "kind"}
    assert "default" not in properties["at"] and problem(schema) is None


@pytest.mark.parametrize(
    ("annotation", "default", "shown"),
    [
        (int, 5, 5),
        (bool, False, False),
        (str, "", ""),
        (float, 0.5, 0.5),
        (Size, Size.SMALL, "s"),
        (Level, Level.HIGH, 2),
        (date, date(2026, 1, 2), "2026-01-02"),
        (datetime, datetime(2026, 1, 2, 3), "2026-01-02T03:00:00"),
        (list[int], [1, 2], [1, 2]),
        (tuple[int, ...], (1, 2), [1, 2]),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Person, Person(name="A"), {"name": "A", "age": 0}),
        (Point, Point(1.0), {"x": 1.0, "y": 0.0}),
        (UUID, UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Invoice.Status, Invoice.Status.OPEN, "open"),
    ],
)
def test_defaults_are_shown(annotation, default, shown):
    arguments = one(annotation, default)
    prop = arguments.schema["properties"]["a"]
    assert prop["default"] == shown and type(prop["default"]) is type(shown)
    assert "required" not in arguments.schema
    assert arguments.read({}) == {}  # the function has its default itself


@pytest.mark.parametrize("default", [None, object(), float("inf"), float("nan"), print, Size])
def test_defaults_that_are_not_shown(default):
    assert "default" not in one(Any, default).schema["properties"]["a"]


def test_an_optional_argument_without_a_default_is_required():
    arguments = one(int | None)
    assert arguments.schema["required"] == ["a"] and arguments.read({"a": None}) == {"a": None}


@pytest.mark.parametrize(
    "name",
    ["schema", "copy", "model_dump", "json", "_private", "model_config", "argument_a", "cls"],
)
def test_arguments_go_by_any_name(name):
    namespace: dict[str, Any] = {}
    exec(f"def function(request, {name}: int): ...", namespace)
    arguments = of(namespace["function"])
    assert list(arguments.schema["properties"]) == [name]
    assert arguments.read({name: 1}) == {name: 1} == arguments.read_text({name: "1"})
    assert refusal(arguments, {name: "x"}).startswith(f"{name}: ")
    assert refusal(arguments, {name: "x"}, "read_text").startswith(f"{name}: ")
    assert refusal(arguments, {}) == f"{name}: this argument is required."


def test_a_class_describes_the_arguments_of_its_method(server):
    @server.register
    class Do(mcp.Tool):
        """Do it.

        Args:
            a: One.
            b: Of the class.
        """

        def handle(self, request, a: int, b: int) -> str:
            """Do it.

            :param b: Of the method.
            """
            return "x"

    properties = right(server).tools["do"]._arguments.schema["properties"]
    assert properties["a"]["description"] == "One."
    assert properties["b"]["description"] == "Of the method."


@pytest.mark.parametrize(
    "annotation", [type("Odd", (), {}), Invoice, list[Invoice], "Nowhere", dict[str, Customer]]
)
def test_types_without_a_schema(annotation):
    with pytest.raises(ImproperlyConfigured):
        one(annotation)


def test_what_pydantic_says_is_cut_to_a_sentence():
    with pytest.raises(ImproperlyConfigured, match="have no JSON Schema") as refused:
        one(type("Odd", (), {}))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("annotation", [Annotated[int, Field(5)], Annotated[int, Field(default=5)]])
def test_a_default_is_the_functions(annotation):
    with pytest.raises(ImproperlyConfigured, match="a: its default is in a Field"):
        one(annotation)


# Reading, strictly.


@pytest.mark.parametrize(
    ("annotation", "given", "value"),
    [
        (int, 5, 5),
        (float, 5, 5.0),
        (bool, True, True),
        (str, "5", "5"),
        (Decimal, "1.50", Decimal("1.50")),
        (Decimal, 1, Decimal(1)),
        (date, "2026-01-02", date(2026, 1, 2)),
        (UUID, "00000000-0000-0000-0000-000000000001", UUID(int=1)),
        (Size, "s", Size.SMALL),
        (Level, 2, Level.HIGH),
        (Invoice.Status, "open", Invoice.Status.OPEN),
        (Literal["a"] | None, None, None),
        (list[int], [1, 2], [1, 2]),
        (set[str], ["a"], {"a"}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Person, {"name": "A", "age": 1}, Person(name="A", age=1)),
        (Point, {"x": 1}, Point(1.0)),
        (Box, {"width": 1}, {"width": 1}),
        (Any, {"a": [None]}, {"a": [None]}),
        (str, "\N{PILE OF POO} ß", "\N{PILE OF POO} ß"),
    ],
)
def test_values(annotation, given, value):
    found = one(annotation).read({"a": given})
    assert found == {"a": value} and type(found["a"]) is type(value)


@pytest.mark.parametrize(
    ("annotation", "given"),
    [
        (int, "5"), (int, 5.0), (int, True), (int, None),
        (float, "5"), (float, True), (float, float("inf")), (float, float("nan")),
        (bool, 1), (bool, "true"),
        (str, 5), (str, None), (str, "\ud800"),
        (Decimal, "x"), (Decimal, "NaN"), (Decimal, True),
        (date, "2026-02-30"), (date, 20260102),
        (UUID, "x"), (UUID, 1),
        (Size, "SMALL"), (Size, "x"), (Level, "1"), (Level, 3),
        (Literal["a"], "A"), (Literal[1], "1"),
        (list[int], 1), (list[int], ["1"]), (list[int], {"0": 1}),
        (dict[str, int], {"a": "1"}),
        (Person, {"name": 5}), (Person, {}), (Person, {"name": "A", "age": -1}),
        (Point, {"x": "1"}), (Box, {"width": "1"}),
        (int | str, 1.5),
        (list[float], [float("-inf")]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_not_bent_until_it_does(annotation, given):
    assert refusal(one(annotation), {"a": given})


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_what_is_read_fits_the_published_schema(given):
    """And what is refused is refused in words, whatever it is."""
    arguments = one(int | list[Size] | dict[str, bool] | Literal["a"] | None)
    try:
        arguments.read({"a": given})
    except InvalidArguments as error:
        assert error.message
    else:
        assert violations(arguments.schema, {"a": given}) == []


def test_what_is_mirrored_into_a_header():
    def function(request, size: Annotated[int, mcp.Header("Size")], name: str = ""): ...

    arguments = of(function)
    assert arguments.headers == {("size",): "Size"}
    assert arguments.schema["properties"]["size"]["x-mcp-header"] == "Size"
    assert arguments.read({"size": 2**53 - 1}) == {"size": 2**53 - 1}
    assert refusal(arguments, {"size": 2**53}).startswith("size: must be an integer from ")


# What Django expects of values.


class Meeting(BaseModel):
    at: datetime
    minutes: bytes = b""


class Agenda(BaseModel):
    """Two levels of models, where pydantic hands on no configuration."""

    meetings: list[Meeting]
    chair: Person | None = None


class Open(BaseModel, extra="allow"):
    name: str


T = TypeVar("T")


@pydantic_dataclass
class Pair(Generic[T]):
    first: T
    second: T | None = Field(None, alias="next")


@pydantic_dataclass
class Cat:
    kind: Literal["cat"]


@pydantic_dataclass
class Dog:
    kind: Literal["dog"]


@pydantic_dataclass(config={"extra": "ignore"})
class Lenient:
    name: str


class Holder(BaseModel):
    """A model hands on its configuration to standard dataclasses and typed dicts in it."""

    point: Point | None = None
    box: Box | None = None
    pair: Pair[int] | None = None


class Encoded(BaseModel):
    metadata: Base64Bytes


class Plain(BaseModel):
    metadata: bytes


class OwnBase64(BaseModel, val_json_bytes="base64"):
    data: bytes
    plain: Plain | None = None


class OwnHex(BaseModel, val_json_bytes="hex"):
    data: bytes


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


PARIS_WINTER = timezone(timedelta(hours=1))


@pytest.mark.parametrize("annotation", [datetime, datetime | None, Annotated[datetime, Field()]])
@pytest.mark.parametrize("read", ["read", "read_text"])
def test_datetime_without_offset_is_in_the_current_time_zone(annotation, read):
    with override("Europe/Paris"):
        found = getattr(one(annotation), read)({"a": "2026-01-02T03:00:00"})["a"]
    assert found == datetime(2026, 1, 2, 3, tzinfo=PARIS_WINTER) and found.utcoffset()


def test_datetime_with_offset_is_kept():
    with override("Europe/Paris"):
        found = one(datetime).read({"a": "2026-01-02T03:00:00-05:00"})["a"]
    assert found.utcoffset() == timedelta(hours=-5)


def test_datetimes_of_nested_types_are_aware():
    given = {"meetings": [{"at": "2026-01-02T03:00:00"}]}
    with override("Europe/Paris"):
        found = one(Agenda).read({"a": given})["a"]
        listed = one(dict[str, list[datetime]]).read({"a": {"b": ["2026-01-02T03:00:00"]}})["a"]
    assert type(found) is Agenda and type(found.meetings[0]) is Meeting
    assert found.meetings[0].at == datetime(2026, 1, 2, 3, tzinfo=PARIS_WINTER) == listed["b"][0]


def test_naive_datetime_stays_naive_where_its_annotation_says_so():
    assert one(NaiveDatetime).read({"a": "2026-01-02T03:00:00"})["a"].tzinfo is None
    assert refusal(one(AwareDatetime), {"a": "2026-01-02T03:00:00"})


def test_datetimes_are_naive_where_the_project_uses_no_time_zones(settings):
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Paris"
    arguments = one(datetime)
    assert arguments.read({"a": "2026-01-02T02:00:00Z"})["a"] == datetime(2026, 1, 2, 3)
    assert arguments.read({"a": "2026-01-02T03:00:00"})["a"] == datetime(2026, 1, 2, 3)
    assert "a: " in refusal(arguments, {"a": "9999-12-31T23:59:59-10:00"})


@pytest.mark.parametrize("read", ["read", "read_text"])
def test_bytes_are_base64(read):
    arguments = one(Annotated[bytes, Field(max_length=3)])
    prop = arguments.schema["properties"]["a"]
    assert prop == {"type": "string", "contentEncoding": "base64"}
    assert getattr(arguments, read)({"a": "+/8A"}) == {"a": b"\xfb\xff\0"}
    assert "This is not base64" in refusal(arguments, {"a": "not base64"}, read)
    assert "at most 3 bytes" in refusal(arguments, {"a": "AAAAAAAA"}, read)


def test_bytes_of_nested_models_are_base64():
    given = {"meetings": [{"at": "2026-01-02T03:00:00Z", "minutes": "+/8A"}]}
    assert one(Agenda).read({"a": given})["a"].meetings[0].minutes == b"\xfb\xff\0"


def encoded(text, encoding):
    return {"type": "string", text: encoding}


@pytest.mark.parametrize(
    ("annotation", "given", "value", "shown"),
    [
        (Base64Bytes, "QUJD", b"ABC", encoded("format", "base64")),
        (Base64UrlBytes, "-_8A", b"\xfb\xff\0", encoded("format", "base64url")),
        (Base64Str, "QUJD", "ABC", encoded("format", "base64")),
        (
            dict[str, Base64Bytes],
            {"b": "QUJD"},
            {"b": b"ABC"},
            {"type": "object", "additionalProperties": encoded("format", "base64")},
        ),
        (
            Base64Bytes | int,
            "QUJD",
            b"ABC",
            {"anyOf": [encoded("format", "base64"), {"type": "integer"}]},
        ),
        (
            SecretBytes,
            "QUJD",
            SecretBytes(b"ABC"),
            encoded("contentEncoding", "base64") | {"format": "password", "writeOnly": True},
        ),
        (bytes | str, "QUJD", "QUJD", {"type": "string"}),
        (str | bytes, "QUJD", "QUJD", {"type": "string"}),
    ],
)
def test_bytes_are_decoded_once(annotation, given, value, shown):
    arguments = one(annotation)
    assert arguments.read({"a": given}) == {"a": value}
    assert arguments.schema["properties"]["a"] == shown


@pytest.mark.parametrize(
    ("model", "given", "name", "value", "shown"),
    [
        (Encoded, "QUJD", "metadata", b"ABC", encoded("format", "base64")),
        (Plain, "QUJD", "metadata", b"ABC", encoded("contentEncoding", "base64")),
        (OwnBase64, "-_8A", "data", b"\xfb\xff\0", encoded("contentEncoding", "base64")),
        (OwnHex, "4142", "data", b"AB", encoded("contentEncoding", "base16")),
    ],
)
def test_a_model_may_say_how_its_bytes_are_written(model, given, name, value, shown):
    arguments = one(model)
    assert getattr(arguments.read({"a": {name: given}})["a"], name) == value
    assert arguments.schema["$defs"][model.__name__]["properties"][name] == shown


def test_what_a_model_says_of_bytes_is_not_about_models_in_it():
    given = {"data": "-_8A", "plain": {"metadata": "+/8A"}}
    assert one(OwnBase64).read({"a": given})["a"].plain.metadata == b"\xfb\xff\0"


@pytest.mark.parametrize(
    ("annotation", "given", "place"),
    [
        (Person, {"name": "A", "agee": 1}, "a.agee"),
        (list[Person], [{"name": "A"}, {"name": "A", "agee": 1}], "a.1.agee"),
        (Agenda, {"meetings": [], "chair": {"name": "A", "agee": 1}}, "a.chair.agee"),
        (Tree, {"name": "A", "children": [{"name": "B", "kids": []}]}, "a.children.0.kids"),
        (Point, {"x": 1, "z": 1}, "a.z"),
        (Box, {"width": 1, "height": 1}, "a.height"),
        (Cat, {"kind": "cat", "b": 1}, "a.b"),
        (Pair[int], {"first": 1, "second": 2}, "a.second"),
        (list[Pair[Cat]], [{"first": {"kind": "cat", "b": 1}}], "a.0.first.b"),
        (Cat | int, {"kind": "cat", "b": 1}, "a.Cat.b"),
        (
            Annotated[Cat | Dog, Field(discriminator="kind")],
            {"kind": "dog", "b": 1},
            "a.dog.b",
        ),
        (Holder, {"point": {"x": 1, "z": 1}}, "a.point.z"),
        (Holder, {"box": {"width": 1, "z": 1}}, "a.box.z"),
        (Holder, {"pair": {"first": 1, "z": 1}}, "a.pair.z"),
    ],
)
def test_unknown_key_of_a_nested_type_is_refused(annotation, given, place):
    """In the published schema, and when it is read."""
    arguments = one(annotation)
    assert f"{place}: " in refusal(arguments, {"a": given})
    assert violations(arguments.schema, {"a": given})


def test_a_pydantic_dataclass_may_ignore_unknown_keys():
    arguments = one(Lenient)
    assert arguments.read({"a": {"name": "A", "b": 1}})["a"] == Lenient("A")
    assert violations(arguments.schema, {"a": {"name": "A", "b": 1}}) == []


def test_a_nested_model_may_allow_unknown_keys():
    arguments = one(Open)
    assert arguments.read({"a": {"name": "A", "b": 1}})["a"].b == 1
    assert violations(arguments.schema, {"a": {"name": "A", "b": 1}}) == []


def test_a_nested_model_is_read_elsewhere_as_it_was():
    """What arguments expect of a model changes nothing for the project's own use of it."""
    one(Agenda).read({"a": {"meetings": []}})
    assert Person.model_validate({"name": "A", "agee": 1}).name == "A"
    assert Meeting.model_validate_json('{"at": "2026-01-02T03:00:00"}').at.tzinfo is None


# Words.


def both(request, first: int, second: Size = Size.SMALL): ...


def test_an_unknown_argument_is_refused_with_those_there_are():
    said = refusal(of(both), {"first": 1, "third": 3})
    assert said == "third: unknown argument. The arguments are: first, second."
    assert refusal(of(lambda request: None), {"a": 1}).endswith("arguments are: none.")


def test_a_missing_argument_is_said_to_be():
    assert refusal(of(both), {}) == "first: this argument is required."


def test_a_wrong_one_is_shown():
    said = refusal(of(both), {"first": "five", "second": "m"})
    assert "first: Input should be a valid integer (got 'five')." in said
    assert "second: Input should be 's' or 'l' (got 'm')." in said


def test_the_place_is_the_whole_way():
    said = refusal(one(list[Person]), {"a": [{"name": "A"}, {"age": 1}]})
    assert said == "a.1.name: this argument is required."


def test_what_a_nested_model_forbids_is_no_argument_of_the_function():
    class Strict(BaseModel, extra="forbid"):
        name: str

    said = refusal(one(Strict), {"a": {"name": "A", "b": 1}})
    assert said.startswith("a.b: Extra inputs are not permitted")


def test_what_is_said_is_bounded():
    long = refusal(of(both), {"first": 1, "k" * 10_000: "v" * 10_000})
    assert len(long) < 300
    many = refusal(of(both), {"first": 1} | {f"x{number}": 1 for number in range(1000)})
    assert len(many) < 1000
    assert len(refusal(of(both), {"first": "v" * 10_000})) < 300
    assert len(refusal(one(dict[str, dict[str, int]]), {"a": {"k" * 9999: {"l" * 999: "x"}}})) < 500


def test_much_that_is_wrong_is_not_counted_out():
    said = refusal(one(list[int]), {"a": ["x"] * 100_000})
    assert said == "There are too many errors. The arguments are: a."


def test_objects_and_lists_are_not_echoed():
    assert "secret" not in refusal(one(int), {"a": ["secret"]})
    assert "secret" not in refusal(one(int), {"a": {"b": "secret"}})


# From text, as prompts and URIs give it.


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (str, "5", "5"),
        (int, "5", 5),
        (float, "1.5", 1.5),
        (bool, "true", True),
        (bool, "false", False),
        (Decimal, "1.50", Decimal("1.50")),
        (date, "2026-01-02", date(2026, 1, 2)),
        (Size, "l", Size.LARGE),
        (Level, "2", Level.HIGH),
        (Literal["a", "b"], "b", "b"),
        (int | None, "5", 5),
    ],
)
def test_text(annotation, text, value):
    assert one(annotation).read_text({"a": text}) == {"a": value}


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (int, "x"),
        (int, "1.5"),
        (bool, "maybe"),
        (Size, "SMALL"),
        (date, "yesterday"),
        (float, "inf"),
    ],
)
def test_text_that_does_not_fit(annotation, text):
    assert repr(text) in refusal(one(annotation), {"a": text}, "read_text")


def test_unknown_and_missing_text():
    assert refusal(of(both), {"first": "1", "x": "1"}, "read_text").startswith(
        "x: unknown argument"
    )
    assert refusal(of(both), {}, "read_text") == "first: this argument is required."


@pytest.mark.parametrize("annotation", [list[int], list[int] | None, Person, Point, dict[str, int]])
def test_what_no_text_can_be(server, annotation):
    def function(request, a) -> str:
        return "x"

    function.__annotations__["a"] = annotation
    server.prompt(function)
    server.resource("x://{a}")(function)
    assert ids(server) == ["E018", "E018"]


def test_what_completes_no_text(server):
    @server.prompt
    def ask(request, name: Annotated[str, mcp.Complete("abc")]) -> str:
        return "x"

    assert only(server).id == "django_mcp.E017"


@pytest.mark.parametrize("annotation", [int, Size, str | None, int | str, int | list[int], Any])
def test_what_text_can_be(server, annotation):
    def function(request, a) -> str:
        return "x"

    function.__annotations__["a"] = annotation
    server.prompt(function)
    right(server)


# Hand-written schemas.

WRITTEN = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "How to pay",
    "type": "object",
    "properties": {"how": {"$ref": "#way"}, "iban": {"type": "string"}},
    "required": ["how"],
    "if": {"properties": {"how": {"const": "bank"}}},
    "then": {"required": ["iban"]},
    "$defs": {"way": {"$anchor": "way", "enum": ["card", "bank"]}},
    "x-own": {"kept": True},
}


def pay(request, how, iban=None) -> str:
    return f"{how} {iban}"


def test_a_handwritten_schema_is_published_verbatim_and_enforced(server):
    server.tool(input_schema=WRITTEN)(pay)
    tool = right(server).tools["pay"]
    assert tool._definition()["inputSchema"] == WRITTEN
    assert tool._arguments.read({"how": "card"}) == {"how": "card"}
    assert refusal(tool._arguments, {"how": "bank"}) == "'iban' is a required property."
    assert refusal(tool._arguments, {"how": "cash"}).startswith("how: 'cash' is not one of")


def test_unknown_arguments_are_refused_though_the_schema_lets_them_through(server):
    server.tool(input_schema=WRITTEN)(pay)
    arguments = right(server).tools["pay"]._arguments
    said = refusal(arguments, {"how": "card", "who": 1})
    assert said == "who: unknown argument. The arguments are: how, iban."
    assert len(refusal(arguments, {"how": "card", "k" * 9999: 1})) < 300


def test_a_function_may_take_whatever_the_schema_lets_through(server):
    @server.tool(input_schema={"type": "object", "patternProperties": {"^x-": {"type": "integer"}}})
    def anything(request, **given) -> str:
        return str(given)

    arguments = right(server).tools["anything"]._arguments
    assert arguments.read({"x-a": 1, "b": "c"}) == {"x-a": 1, "b": "c"}
    assert refusal(arguments, {"x-a": "1"}) == "x-a: '1' is not of type 'integer'."


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "object", "properties": {"how": {}}}, "how: the function requires it"),
        (
            {"type": "object", "properties": {"how": {}, "who": {}}, "required": ["how"]},
            "who: it is in the schema, but the function",
        ),
    ],
)
def test_the_schema_and_the_function_meet(server, schema, words):
    server.tool(input_schema=schema)(pay)
    message = only(server)
    assert message.id == "django_mcp.E026" and message.msg.startswith(words)


def test_what_the_function_needs_may_be_demanded_anywhere(server):
    schema = {"type": "object", "allOf": [{"required": ["how"]}], "properties": {"required": {}}}
    server.tool(input_schema=schema, name="a")(lambda request, how, required=None: "x")
    right(server)


@pytest.mark.parametrize(
    ("schema", "number"),
    [
        ([], "E021"),
        ("object", "E021"),
        ({"type": "object", "properties": []}, "E021"),
        ({"type": "object", "$ref": "https://evil.example/s.json"}, "E021"),
        ({"type": "array"}, "E022"),
        ({}, "E022"),
    ],
)
def test_handwritten_schemas_with_mistakes(server, schema, number):
    server.tool(input_schema=schema, name="a")(lambda request: "x")
    assert ids(server) == [number]


# Binding.


def test_only_what_was_given_is_bound(server, alice, invoice):
    from .world import asked

    class Rows(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request)

    server.register(Customer, Rows)
    server.register(Company, type("Companies", (Rows,), {}))

    @server.tool
    def ask(request, customer: Customer, company: Company | None = None, name: str = "") -> str:
        return "x"

    arguments = right(server).tools["ask"]._arguments
    assert arguments.binds
    request = asked(alice, server)
    values = arguments.read({"customer": invoice.customer_id, "name": "A"})
    bound = arguments.bind(values, request, write=True)
    assert bound == {"customer": invoice.customer, "name": "A"}
    values = arguments.read({"customer": invoice.customer_id, "company": None})
    assert arguments.bind(values, request, write=True)["company"] is None


def test_a_bound_argument_is_described_by_its_docstring_and_by_its_key(server, alice):
    @mcp.register(Invoice, server=server)
    class InvoiceResource(mcp.ModelResource):
        fields = ["number"]

    @server.tool
    def pay(request: mcp.Request, invoice: Invoice) -> str:
        """Pay.

        Args:
            invoice: The one to pay.
        """
        return "paid"

    shown = server.ready().tools["pay"]._definition()["inputSchema"]["properties"]["invoice"]
    assert shown["description"] == "The one to pay. Key or URI of the invoice."
