"""Completion of arguments: choices, functions and rows that the caller may see."""

import enum
from typing import Annotated, Literal

import pytest
from django.db import models

import django_mcp as mcp
from django_mcp.declarations.completions import (
    completer_problem,
    completion,
    literal_values,
    rank_matches,
)
from tests.shop.models import Company, Customer, Invoice, Tag

from .helpers import make_request, problem_ids, single_problem, valid_catalog


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def complete(server, name, text="", context=None, request=None):
    completer = server._catalog.prompts["ask"]._completers[name]
    return list(completer(request or make_request(server=server), text, context or {}))


# Choices.


@pytest.mark.parametrize(
    ("annotation", "choices"),
    [
        (Literal["a", "b"], ["a", "b"]),
        (Literal[1, True], ["1", "True"]),
        (bool, ["true", "false"]),
        (Size, ["s", "l"]),
        (Level, ["1", "2"]),
        (Invoice.Status, ["draft", "open", "paid"]),
        (Size | None, ["s", "l"]),
        (Literal["a"] | Size, ["a", "s", "l"]),
        (Annotated[Literal["a"], "x"], ["a"]),
        (str, []),
        (list[Size], []),
        (str | None, []),
    ],
)
def test_choices_of_an_annotation(annotation, choices):
    assert literal_values(annotation) == choices


def test_arguments_with_choices_are_completed_by_default(server):
    @server.prompt
    def ask(request, size: Size, sure: bool = False, name: str = "") -> str:
        return "x"

    valid_catalog(server)
    assert complete(server, "size") == ["s", "l"] and complete(server, "sure", "T") == ["true"]
    assert "name" not in server._catalog.prompts["ask"]._completers


def test_values_with_the_prefix_come_before_values_that_contain_the_text():
    assert rank_matches(["New York", "York", "yorkshire", "Paris"], "YORK") == [
        "York", "yorkshire", "New York",
    ]  # fmt: skip
    assert rank_matches(["b", "a"], "") == ["b", "a"]
    assert rank_matches(["STRASSE"], "straße") == ["STRASSE"]


# Lists and functions.


def test_completion_from_a_list(server):
    @server.prompt
    def ask(request, name: Annotated[str, mcp.Complete(["one", "two", 3])] | None = None) -> str:
        return "x"

    valid_catalog(server)
    assert complete(server, "name") == ["one", "two", "3"]
    assert complete(server, "name", "o") == ["one", "two"]


def with_context(request, text, context):
    return [f"{text}-{context.get('country')}"]


def with_another_name(request, text, before):
    return [f"{text}-{before.get('country')}"]


def without_context(request, text, limit=10):
    return [text] * 2 + [str(limit)]


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (with_context, ["x-fr"]),
        (with_another_name, ["x-fr"]),
        (without_context, ["x", "x", "10"]),
        (lambda request, text: (text,), ["x"]),
        (lambda request, text, context=None: context.values(), ["fr"]),
        (lambda request, text: {"a": 1}, ["a"]),
    ],
)
def test_completion_function_may_accept_the_earlier_arguments(server, function, values):
    @server.prompt
    def ask(request, name: Annotated[str, mcp.Complete(function)]) -> str:
        return "x"

    valid_catalog(server)
    assert complete(server, "name", "x", {"country": "fr"}) == values


def test_completion_function_gets_the_request(server, alice):
    @server.prompt
    def ask(request, name: Annotated[str, mcp.Complete(lambda r, text: [r.user.username])]) -> str:
        return "x"

    valid_catalog(server)
    assert complete(server, "name", request=make_request(alice, server)) == ["alice"]


async def asynchronous(request, text):
    return []


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (asynchronous, "async"),
        ("abc", "neither a function nor a list"),
        (7, "neither a function nor a list"),
        (iter(["a"]), "neither a function nor a list"),
        (Customer.objects.all(), "neither a function nor a list"),
        (lambda: [], "does not accept"),
        (lambda request: [], "does not accept"),
        (lambda request, text, context, more: [], "does not accept"),
        (lambda *, request, text: [], "does not accept"),
    ],
)
def test_invalid_completer_is_an_error(server, function, words):
    assert words in completer_problem(mcp.Complete(function))

    @server.prompt
    def ask(request, name: Annotated[str, mcp.Complete(function)]) -> str:
        return "x"

    message = single_problem(server)
    assert message.id == "django_mcp.E017" and message.msg.startswith("name: ")


def test_invalid_completer_of_a_resource_is_an_error(server):
    @server.resource("x://{name}")
    def read(request, name: Annotated[str, mcp.Complete(asynchronous)]) -> str:
        return "x"

    assert problem_ids(server) == ["E017"]


def test_completer_is_allowed_in_an_optional_annotation():
    """An annotation must be hashable, even if the completer contains a list."""
    assert Annotated[str, mcp.Complete(["a"])] | None


# Models.


@pytest.fixture
def customers(server):
    class Customers(mcp.ModelResource):
        fields = ["name"]
        search_fields = ["name"]
        permission = mcp.AUTHENTICATED

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

    @server.prompt
    def ask(request, customer: Customer, customer_too: Customer | None = None) -> str:
        return "x"

    server.register(Customer, Customers)
    valid_catalog(server)
    return server


def test_bound_model_is_completed_with_rows_that_the_caller_may_see(customers, alice, bob, invoice):
    key = str(invoice.customer_id)
    for name in ("customer", "customer_too"):
        assert complete(customers, name, "carl", request=make_request(alice, customers)) == [key]
        assert complete(customers, name, key, request=make_request(alice, customers)) == [key]
        assert complete(customers, name, "carl", request=make_request(bob, customers)) == []
        assert complete(customers, name, "carl", request=make_request(None, customers)) == []


# Results.


def test_completion_has_at_most_100_values():
    assert completion(range(3)) == {"values": ["0", "1", "2"], "hasMore": False, "total": 3}
    full = completion(range(100))
    assert len(full["values"]) == full["total"] == 100 and full["hasMore"] is False
    more = completion(iter(range(101)))
    assert len(more["values"]) == 100 and more["hasMore"] is True and "total" not in more


def test_endless_iterator_is_cut():
    def forever():
        while True:
            yield "x"

    assert completion(forever())["hasMore"] is True


def test_completion_from_a_queryset_loads_a_limited_number_of_rows(db, django_assert_num_queries):
    Company.objects.bulk_create(Company(name=f"{number:03}") for number in range(150))
    found = Company.objects.order_by("name").values_list("name", flat=True)
    assert isinstance(found, models.QuerySet)
    with django_assert_num_queries(1) as queries:
        shown = completion(found)
    assert shown["values"][99] == "099" and shown["hasMore"] is True
    assert "LIMIT 101" in queries[0]["sql"]


def test_completion_from_a_sliced_queryset(db):
    Company.objects.bulk_create(Company(name=f"{number:03}") for number in range(5))
    found = Company.objects.order_by("name").values_list("name", flat=True)[1:3]
    assert completion(found)["values"] == ["001", "002"]


@pytest.mark.parametrize("value", [Tag(label="hidden"), (Tag(label="hidden"),), {"a": 1}])
def test_completion_with_model_instances_raises(value):
    """``str(row)`` is not restricted by ``fields``, so it could expose any column."""
    with pytest.raises(TypeError, match="values_list"):
        completion([value])
