"""The signature of a function, read as arguments: a name and a type each, and the request first."""

import functools
import typing
from typing import Annotated, Optional

import pytest
from django.core.exceptions import ImproperlyConfigured
from pydantic import Field

import django_mcp as mcp
from django_mcp.declarations.arguments import parameters_of, signature_of, takes_anything
from tests.shop.models import Invoice


def find(model, chosen):
    raise AssertionError("no model is asked for")


def read(function, handwritten=False):
    return parameters_of(function, find, handwritten=handwritten)


def test_every_parameter_but_the_request():
    def function(request, a: int, b: str = "x", *, c: float | None = None): ...

    found = read(function)
    assert list(found) == ["a", "b", "c"]
    assert [one.required for one in found.values()] == [True, False, False]
    assert [one.annotation for one in found.values()] == [int, str, float | None]


def test_the_request_may_go_by_any_name_and_be_positional_only():
    def function(req, /, a: int): ...

    assert list(read(function)) == ["a"]


def test_a_method_has_the_request_after_itself():
    class Thing:
        def handle(self, request, a: int): ...

    assert list(read(Thing().handle)) == ["a"]


def test_a_wrapped_function_is_read_through():
    def function(request, a: int): ...

    @functools.wraps(function)
    def wrapper(*args, **kwargs): ...

    assert list(read(wrapper)) == ["a"]


def test_annotations_may_be_strings():
    def function(request, a: "int | None" = None): ...

    assert read(function)["a"].annotation == int | None


class Like(typing.Protocol):
    user: object


T = typing.TypeVar("T")


@pytest.mark.parametrize("kind", [mcp.Request, "mcp.Request | None", Like, typing.Any, object, T])
def test_the_request_by_another_name_says_what_it_is(kind):
    def function(req, a: int): ...

    function.__annotations__["req"] = kind
    assert list(read(function)) == ["a"]


def nameless(): ...
def only_keywords(*, request): ...
def anything(*args): ...
def forgotten(a: int, b: int): ...
def forgotten_list(names: list[str]): ...
def forgotten_row(invoice: Invoice, b: int): ...
def forgotten_limits(a: Annotated[int, Field(gt=0)]): ...
def many(request, *names: str): ...
def any_name(request, **names: str): ...
def positional(request, a: int, /): ...
def untyped(request, a): ...
def unknown(request, a: "Nowhere"): ...  # noqa: F821
def broken(request, a: "1 / 0"): ...
def field_default(request, a: int = Field(5, gt=0)): ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (nameless, "first argument must be the request"),
        (only_keywords, "first argument must be the request"),
        (anything, "first argument must be the request"),
        (forgotten, "Write request before 'a'"),
        (forgotten_list, "Write request before 'names'"),
        (forgotten_row, "Write request before 'invoice'"),
        (forgotten_limits, "Write request before 'a'"),
        (many, "names has no schema"),
        (any_name, "names has no schema"),
        (positional, "a is positional-only"),
        (untyped, "a needs a type annotation"),
        (unknown, "Nowhere"),
        (broken, "division by zero"),
        (field_default, "Annotated"),
        (type, "signature cannot be read"),
    ],
)
def test_signatures_without_a_schema(function, words):
    with pytest.raises(ImproperlyConfigured, match=words):
        read(function)


def test_with_a_handwritten_schema_types_may_be_missing():
    def function(request, a, **others): ...

    assert list(read(function, handwritten=True)) == ["a"]
    assert takes_anything(function) and not takes_anything(untyped)
    with pytest.raises(ImproperlyConfigured):
        read(many, handwritten=True)


def test_what_annotations_say_beside_the_type():
    header, complete = mcp.Header("Region"), mcp.Complete(["eu"])

    def function(
        request,
        a: Annotated[str, header, complete],
        b: Annotated[str, header] | None = None,
        c: Optional[Annotated[str, "x", complete]] = None,  # noqa: UP045
        d: Annotated[Annotated[str, header] | None, "y"] = None,
        e: Annotated[str, "z"] = "",
        f: str | None = None,
    ): ...

    found = read(function)
    assert [one.header for one in found.values()] == [header, header, None, header, None, None]
    assert [one.complete for one in found.values()] == [complete, None, complete, None, None, None]


def test_a_signature_has_its_return_type():
    def function(request) -> "list[int]": ...

    assert signature_of(function).return_annotation == list[int]
