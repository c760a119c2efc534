"""Parameters of functions and methods as arguments: names, types, defaults and the request."""

import functools
import typing
from typing import Annotated, Optional

import pytest
from django.core.exceptions import ImproperlyConfigured
from pydantic import Field

import django_mcp as mcp
from django_mcp.declarations.arguments import parameters_of, signature_of, takes_anything
from tests.shop.models import Invoice


def find_no_model(model, chosen):
    raise AssertionError("no model is asked for")


def read(function, handwritten=False):
    return parameters_of(function, find_no_model, handwritten=handwritten)


def test_all_parameters_except_the_request_are_arguments():
    def function(request, a: int, b: str = "x", *, c: float | None = None): ...

    found = read(function)
    assert list(found) == ["a", "b", "c"]
    assert [one.required for one in found.values()] == [True, False, False]
    assert [one.annotation for one in found.values()] == [int, str, float | None]


def test_request_may_have_any_name_and_be_positional_only():
    def function(req, /, a: int): ...

    assert list(read(function)) == ["a"]


def test_request_of_a_method_follows_self():
    class Thing:
        def handle(self, request, a: int): ...

    assert list(read(Thing().handle)) == ["a"]


def test_signature_of_the_wrapped_function_is_used():
    def function(request, a: int): ...

    @functools.wraps(function)
    def wrapper(*args, **kwargs): ...

    assert list(read(wrapper)) == ["a"]


def test_annotation_may_be_a_string():
    def function(request, a: "int | None" = None): ...

    assert read(function)["a"].annotation == int | None


class Like(typing.Protocol):
    user: object


T = typing.TypeVar("T")


@pytest.mark.parametrize("kind", [mcp.Request, "mcp.Request | None", Like, typing.Any, object, T])
def test_annotation_of_the_request_may_be_any_supertype(kind):
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
def test_unsupported_signature_raises(function, words):
    with pytest.raises(ImproperlyConfigured, match=words):
        read(function)


def test_annotations_may_be_missing_with_a_handwritten_schema():
    def function(request, a, **others): ...

    assert list(read(function, handwritten=True)) == ["a"]
    assert takes_anything(function) and not takes_anything(untyped)
    with pytest.raises(ImproperlyConfigured):
        read(many, handwritten=True)


def test_header_and_completer_are_found_in_annotations():
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


def test_signature_resolves_the_return_annotation():
    def function(request) -> "list[int]": ...

    assert signature_of(function).return_annotation == list[int]
