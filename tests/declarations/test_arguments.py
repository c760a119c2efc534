"""Arguments of a function: the published schema, strict reading, error messages and binding."""

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

from .helpers import problem_ids, single_problem, valid_catalog


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


def find_no_model(model, chosen):
    raise ImproperlyConfigured("none is registered")


def arguments_for(function, schema=None) -> Arguments:
    return arguments_of(function, find_no_model, schema=schema)


def single_argument(annotation, default=...) -> Arguments:
    """Return the arguments of a function with one argument ``a``."""

    def function(request, a): ...

    function.__annotations__["a"] = annotation
    function.__defaults__ = () if default is ... else (default,)
    return arguments_for(function)


def refusal_message(arguments, given, read="read") -> str:
    with pytest.raises(InvalidArguments) as refused:
        getattr(arguments, read)(given)
    assert refused.value.message.startswith("Invalid arguments. ")
    return refused.value.message.removeprefix("Invalid arguments. ")


# The schema.


def test_function_without_arguments_has_an_empty_schema():
    def function(request): ...

    arguments = arguments_for(function)
    assert arguments.schema == {"type": "object", "additionalProperties": False}
    assert arguments.read({}) == {} and not arguments.binds and arguments.headers == {}


def test_schema_of_a_function_with_typed_arguments():
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

    schema = arguments_for(function).schema
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
def test_default_is_in_the_schema_as_json(annotation, default, shown):
    arguments = single_argument(annotation, default)
    prop = arguments.schema["properties"]["a"]
    assert prop["default"] == shown and type(prop["default"]) is type(shown)
    assert "required" not in arguments.schema
    assert arguments.read({}) == {}  # the function uses its own default


@pytest.mark.parametrize("default", [None, object(), float("inf"), float("nan"), print, Size])
def test_default_without_a_json_form_is_not_in_the_schema(default):
    assert "default" not in single_argument(Any, default).schema["properties"]["a"]


def test_nullable_argument_without_a_default_is_required():
    arguments = single_argument(int | None)
    assert arguments.schema["required"] == ["a"] and arguments.read({"a": None}) == {"a": None}


@pytest.mark.parametrize(
    "name",
    ["schema", "copy", "model_dump", "json", "_private", "model_config", "argument_a", "cls"],
)
def test_argument_may_have_any_name(name):
    namespace: dict[str, Any] = {}
    exec(f"def function(request, {name}: int): ...", namespace)
    arguments = arguments_for(namespace["function"])
    assert list(arguments.schema["properties"]) == [name]
    assert arguments.read({name: 1}) == {name: 1} == arguments.read_text({name: "1"})
    assert refusal_message(arguments, {name: "x"}).startswith(f"{name}: ")
    assert refusal_message(arguments, {name: "x"}, "read_text").startswith(f"{name}: ")
    assert refusal_message(arguments, {}) == f"{name}: this argument is required."


def test_docstring_of_a_class_describes_arguments_of_its_method(server):
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

    properties = valid_catalog(server).tools["do"]._arguments.schema["properties"]
    assert properties["a"]["description"] == "One."
    assert properties["b"]["description"] == "Of the method."


@pytest.mark.parametrize(
    "annotation", [type("Odd", (), {}), Invoice, list[Invoice], "Nowhere", dict[str, Customer]]
)
def test_type_without_a_schema_is_refused(annotation):
    with pytest.raises(ImproperlyConfigured):
        single_argument(annotation)


def test_error_of_pydantic_is_shortened_to_one_line():
    with pytest.raises(ImproperlyConfigured, match="have no JSON Schema") as refused:
        single_argument(type("Odd", (), {}))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("annotation", [Annotated[int, Field(5)], Annotated[int, Field(default=5)]])
def test_default_inside_a_field_annotation_is_refused(annotation):
    with pytest.raises(ImproperlyConfigured, match="a: its default is in a Field"):
        single_argument(annotation)


# Strict reading.


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
def test_valid_value_is_converted_to_its_type(annotation, given, value):
    found = single_argument(annotation).read({"a": given})
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
def test_value_of_another_type_is_refused_and_not_coerced(annotation, given):
    assert refusal_message(single_argument(annotation), {"a": given})


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_accepted_values_fit_the_published_schema(given):
    """Values that are refused raise an error with a message."""
    arguments = single_argument(int | list[Size] | dict[str, bool] | Literal["a"] | None)
    try:
        arguments.read({"a": given})
    except InvalidArguments as error:
        assert error.message
    else:
        assert violations(arguments.schema, {"a": given}) == []


def test_argument_that_is_mirrored_into_a_header():
    def function(request, size: Annotated[int, mcp.Header("Size")], name: str = ""): ...

    arguments = arguments_for(function)
    assert arguments.headers == {("size",): "Size"}
    assert arguments.schema["properties"]["size"]["x-mcp-header"] == "Size"
    assert arguments.read({"size": 2**53 - 1}) == {"size": 2**53 - 1}
    assert refusal_message(arguments, {"size": 2**53}).startswith("size: must be an integer from ")


# Time zones, bytes and nested models.


class Meeting(BaseModel):
    at: datetime
    minutes: bytes = b""


class Agenda(BaseModel):
    """Two levels of models. Pydantic does not pass the configuration on to nested models."""

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
    """A model that passes its configuration on to its standard dataclasses and typed dicts."""

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
        found = getattr(single_argument(annotation), read)({"a": "2026-01-02T03:00:00"})["a"]
    assert found == datetime(2026, 1, 2, 3, tzinfo=PARIS_WINTER) and found.utcoffset()


def test_datetime_with_offset_is_kept():
    with override("Europe/Paris"):
        found = single_argument(datetime).read({"a": "2026-01-02T03:00:00-05:00"})["a"]
    assert found.utcoffset() == timedelta(hours=-5)


def test_datetimes_of_nested_types_are_aware():
    given = {"meetings": [{"at": "2026-01-02T03:00:00"}]}
    with override("Europe/Paris"):
        found = single_argument(Agenda).read({"a": given})["a"]
        listed = single_argument(dict[str, list[datetime]]).read(
            {"a": {"b": ["2026-01-02T03:00:00"]}}
        )["a"]
    assert type(found) is Agenda and type(found.meetings[0]) is Meeting
    assert found.meetings[0].at == datetime(2026, 1, 2, 3, tzinfo=PARIS_WINTER) == listed["b"][0]


def test_naive_datetime_annotation_keeps_the_datetime_naive():
    assert single_argument(NaiveDatetime).read({"a": "2026-01-02T03:00:00"})["a"].tzinfo is None
    assert refusal_message(single_argument(AwareDatetime), {"a": "2026-01-02T03:00:00"})


def test_datetimes_are_naive_without_use_tz(settings):
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Paris"
    arguments = single_argument(datetime)
    assert arguments.read({"a": "2026-01-02T02:00:00Z"})["a"] == datetime(2026, 1, 2, 3)
    assert arguments.read({"a": "2026-01-02T03:00:00"})["a"] == datetime(2026, 1, 2, 3)
    assert "a: " in refusal_message(arguments, {"a": "9999-12-31T23:59:59-10:00"})


@pytest.mark.parametrize("read", ["read", "read_text"])
def test_bytes_are_base64(read):
    arguments = single_argument(Annotated[bytes, Field(max_length=3)])
    prop = arguments.schema["properties"]["a"]
    assert prop == {"type": "string", "contentEncoding": "base64"}
    assert getattr(arguments, read)({"a": "+/8A"}) == {"a": b"\xfb\xff\0"}
    assert "This is not base64" in refusal_message(arguments, {"a": "not base64"}, read)
    assert "at most 3 bytes" in refusal_message(arguments, {"a": "AAAAAAAA"}, read)


def test_bytes_of_nested_models_are_base64():
    given = {"meetings": [{"at": "2026-01-02T03:00:00Z", "minutes": "+/8A"}]}
    assert single_argument(Agenda).read({"a": given})["a"].meetings[0].minutes == b"\xfb\xff\0"


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
def test_base64_types_of_pydantic_are_decoded_only_once(annotation, given, value, shown):
    arguments = single_argument(annotation)
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
def test_model_configuration_sets_the_encoding_of_its_bytes(model, given, name, value, shown):
    arguments = single_argument(model)
    assert getattr(arguments.read({"a": {name: given}})["a"], name) == value
    assert arguments.schema["$defs"][model.__name__]["properties"][name] == shown


def test_bytes_configuration_does_not_apply_to_nested_models():
    given = {"data": "-_8A", "plain": {"metadata": "+/8A"}}
    assert single_argument(OwnBase64).read({"a": given})["a"].plain.metadata == b"\xfb\xff\0"


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
    """The published schema and the reader both refuse it."""
    arguments = single_argument(annotation)
    assert f"{place}: " in refusal_message(arguments, {"a": given})
    assert violations(arguments.schema, {"a": given})


def test_pydantic_dataclass_can_ignore_unknown_keys():
    arguments = single_argument(Lenient)
    assert arguments.read({"a": {"name": "A", "b": 1}})["a"] == Lenient("A")
    assert violations(arguments.schema, {"a": {"name": "A", "b": 1}}) == []


def test_nested_model_can_allow_unknown_keys():
    arguments = single_argument(Open)
    assert arguments.read({"a": {"name": "A", "b": 1}})["a"].b == 1
    assert violations(arguments.schema, {"a": {"name": "A", "b": 1}}) == []


def test_validation_of_the_model_outside_of_arguments_is_unchanged():
    single_argument(Agenda).read({"a": {"meetings": []}})
    assert Person.model_validate({"name": "A", "agee": 1}).name == "A"
    assert Meeting.model_validate_json('{"at": "2026-01-02T03:00:00"}').at.tzinfo is None


# Error messages.


def two_arguments(request, first: int, second: Size = Size.SMALL): ...


def test_unknown_argument_is_refused_with_the_known_names():
    message = refusal_message(arguments_for(two_arguments), {"first": 1, "third": 3})
    assert message == "third: unknown argument. The arguments are: first, second."
    assert refusal_message(arguments_for(lambda request: None), {"a": 1}).endswith(
        "arguments are: none."
    )


def test_missing_argument_is_named():
    assert refusal_message(arguments_for(two_arguments), {}) == "first: this argument is required."


def test_message_contains_the_invalid_value():
    message = refusal_message(arguments_for(two_arguments), {"first": "five", "second": "m"})
    assert "first: Input should be a valid integer (got 'five')." in message
    assert "second: Input should be 's' or 'l' (got 'm')." in message


def test_message_contains_the_full_path_of_the_error():
    message = refusal_message(single_argument(list[Person]), {"a": [{"name": "A"}, {"age": 1}]})
    assert message == "a.1.name: this argument is required."


def test_extra_key_of_a_strict_nested_model_has_pydantics_message():
    class Strict(BaseModel, extra="forbid"):
        name: str

    message = refusal_message(single_argument(Strict), {"a": {"name": "A", "b": 1}})
    assert message.startswith("a.b: Extra inputs are not permitted")


def test_length_of_messages_is_limited():
    long = refusal_message(arguments_for(two_arguments), {"first": 1, "k" * 10_000: "v" * 10_000})
    assert len(long) < 300
    many = refusal_message(
        arguments_for(two_arguments), {"first": 1} | {f"x{number}": 1 for number in range(1000)}
    )
    assert len(many) < 1000
    assert len(refusal_message(arguments_for(two_arguments), {"first": "v" * 10_000})) < 300
    assert (
        len(
            refusal_message(
                single_argument(dict[str, dict[str, int]]), {"a": {"k" * 9999: {"l" * 999: "x"}}}
            )
        )
        < 500
    )


def test_message_for_too_many_errors_does_not_list_them():
    message = refusal_message(single_argument(list[int]), {"a": ["x"] * 100_000})
    assert message == "There are too many errors. The arguments are: a."


def test_objects_and_lists_are_not_echoed():
    assert "secret" not in refusal_message(single_argument(int), {"a": ["secret"]})
    assert "secret" not in refusal_message(single_argument(int), {"a": {"b": "secret"}})


# Reading of text, as in prompts and URIs.


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
def test_text_is_converted_to_the_type(annotation, text, value):
    assert single_argument(annotation).read_text({"a": text}) == {"a": value}


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
def test_text_that_does_not_fit_the_type_is_refused(annotation, text):
    assert repr(text) in refusal_message(single_argument(annotation), {"a": text}, "read_text")


def test_unknown_and_missing_text_arguments_are_refused():
    assert refusal_message(
        arguments_for(two_arguments), {"first": "1", "x": "1"}, "read_text"
    ).startswith("x: unknown argument")
    assert (
        refusal_message(arguments_for(two_arguments), {}, "read_text")
        == "first: this argument is required."
    )


@pytest.mark.parametrize("annotation", [list[int], list[int] | None, Person, Point, dict[str, int]])
def test_type_that_text_cannot_represent_is_an_error_in_prompts_and_uris(server, annotation):
    def function(request, a) -> str:
        return "x"

    function.__annotations__["a"] = annotation
    server.prompt(function)
    server.resource("x://{a}")(function)
    assert problem_ids(server) == ["E018", "E018"]


def test_completer_that_is_a_string_is_an_error(server):
    @server.prompt
    def ask(request, name: Annotated[str, mcp.Complete("abc")]) -> str:
        return "x"

    assert single_problem(server).id == "django_mcp.E017"


@pytest.mark.parametrize("annotation", [int, Size, str | None, int | str, int | list[int], Any])
def test_type_that_text_can_represent_is_valid_in_a_prompt(server, annotation):
    def function(request, a) -> str:
        return "x"

    function.__annotations__["a"] = annotation
    server.prompt(function)
    valid_catalog(server)


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


def test_handwritten_schema_is_published_verbatim_and_enforced(server):
    server.tool(input_schema=WRITTEN)(pay)
    tool = valid_catalog(server).tools["pay"]
    assert tool._definition()["inputSchema"] == WRITTEN
    assert tool._arguments.read({"how": "card"}) == {"how": "card"}
    assert refusal_message(tool._arguments, {"how": "bank"}) == "'iban' is a required property."
    assert refusal_message(tool._arguments, {"how": "cash"}).startswith("how: 'cash' is not one of")


def test_unknown_argument_is_refused_even_if_the_handwritten_schema_allows_it(server):
    server.tool(input_schema=WRITTEN)(pay)
    arguments = valid_catalog(server).tools["pay"]._arguments
    message = refusal_message(arguments, {"how": "card", "who": 1})
    assert message == "who: unknown argument. The arguments are: how, iban."
    assert len(refusal_message(arguments, {"how": "card", "k" * 9999: 1})) < 300


def test_function_with_kwargs_accepts_all_that_the_schema_allows(server):
    @server.tool(input_schema={"type": "object", "patternProperties": {"^x-": {"type": "integer"}}})
    def anything(request, **given) -> str:
        return str(given)

    arguments = valid_catalog(server).tools["anything"]._arguments
    assert arguments.read({"x-a": 1, "b": "c"}) == {"x-a": 1, "b": "c"}
    assert refusal_message(arguments, {"x-a": "1"}) == "x-a: '1' is not of type 'integer'."


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
def test_handwritten_schema_that_contradicts_the_signature_is_an_error(server, schema, words):
    server.tool(input_schema=schema)(pay)
    message = single_problem(server)
    assert message.id == "django_mcp.E026" and message.msg.startswith(words)


def test_required_argument_may_be_required_in_a_subschema(server):
    schema = {"type": "object", "allOf": [{"required": ["how"]}], "properties": {"required": {}}}
    server.tool(input_schema=schema, name="a")(lambda request, how, required=None: "x")
    valid_catalog(server)


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
def test_invalid_handwritten_schema_is_an_error(server, schema, number):
    server.tool(input_schema=schema, name="a")(lambda request: "x")
    assert problem_ids(server) == [number]


# Binding.


def test_only_given_arguments_are_bound(server, alice, invoice):
    from .helpers import make_request

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

    arguments = valid_catalog(server).tools["ask"]._arguments
    assert arguments.binds
    request = make_request(alice, server)
    values = arguments.read({"customer": invoice.customer_id, "name": "A"})
    bound = arguments.bind(values, request, write=True)
    assert bound == {"customer": invoice.customer, "name": "A"}
    values = arguments.read({"customer": invoice.customer_id, "company": None})
    assert arguments.bind(values, request, write=True)["company"] is None


def test_description_of_a_bound_argument_mentions_key_and_uri(server, alice):
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
