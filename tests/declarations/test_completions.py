"""Completion: only what the caller may see, the likeliest first, a hundred at most."""

import enum
from typing import Annotated, Literal

import pytest
from django.db import models

import django_mcp as mcp
from django_mcp.declarations.completions import choices_of, completer_problem, completion, ranked
from tests.shop.models import Company, Customer, Invoice, Tag

from .world import asked, ids, only, right


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def completed(server, name, text="", context=None, request=None):
    completer = server._catalog.prompts["ask"]._completers[name]
    return list(completer(request or asked(server=server), text, context or {}))


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
def test_choices(annotation, choices):
    assert choices_of(annotation) == choices


def test_they_complete_themselves_without_being_asked_to(server):
    @server.prompt
    def ask(request, size: Size, sure: bool = False, name: str = "") -> str:
        return "x"

    right(server)
    assert completed(server, "size") == ["s", "l"] and completed(server, "sure", "T") == ["true"]
    assert "name" not in server._catalog.prompts["ask"]._completers


def test_what_begins_so_comes_before_what_contains_it():
    assert ranked(["New York", "York", "yorkshire", "Paris"], "YORK") == [
        "York", "yorkshire", "New York",
    ]  # fmt: skip
    assert ranked(["b", "a"], "") == ["b", "a"]
    assert ranked(["STRASSE"], "straße") == ["STRASSE"]


# Functions.


def test_a_list_of_values(server):
    @server.prompt
    def ask(request, name: Annotated[str, mcp.Complete(["one", "two", 3])] | None = None) -> str:
        return "x"

    right(server)
    assert completed(server, "name") == ["one", "two", "3"]
    assert completed(server, "name", "o") == ["one", "two"]


def with_context(request, text, context):
    return [f"{text}-{context.get('country')}"]


def with_three(request, text, before):
    return [f"{text}-{before.get('country')}"]


def without_context(request, text, limit=10):
    return [text] * 2 + [str(limit)]


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (with_context, ["x-fr"]),
        (with_three, ["x-fr"]),
        (without_context, ["x", "x", "10"]),
        (lambda request, text: (text,), ["x"]),
        (lambda request, text, context=None: context.values(), ["fr"]),
        (lambda request, text: {"a": 1}, ["a"]),
    ],
)
def test_functions_take_the_earlier_arguments_or_not(server, function, values):
    @server.prompt
    def ask(request, name: Annotated[str, mcp.Complete(function)]) -> str:
        return "x"

    right(server)
    assert completed(server, "name", "x", {"country": "fr"}) == values


def test_a_function_is_given_the_request(server, alice):
    @server.prompt
    def ask(request, name: Annotated[str, mcp.Complete(lambda r, text: [r.user.username])]) -> str:
        return "x"

    right(server)
    assert completed(server, "name", request=asked(alice, server)) == ["alice"]


async def later(request, text):
    return []


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (later, "async"),
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
def test_what_completes_nothing(server, function, words):
    assert words in completer_problem(mcp.Complete(function))

    @server.prompt
    def ask(request, name: Annotated[str, mcp.Complete(function)]) -> str:
        return "x"

    message = only(server)
    assert message.id == "django_mcp.E017" and message.msg.startswith("name: ")


def test_it_is_checked_of_resources_too(server):
    @server.resource("x://{name}")
    def read(request, name: Annotated[str, mcp.Complete(later)]) -> str:
        return "x"

    assert ids(server) == ["E017"]


def test_completers_may_stand_in_optional_annotations():
    """An annotation must have a hash, also around a list."""
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
    right(server)
    return server


def test_a_bound_model_completes_by_what_the_caller_may_see(customers, alice, bob, invoice):
    key = str(invoice.customer_id)
    for name in ("customer", "customer_too"):
        assert completed(customers, name, "carl", request=asked(alice, customers)) == [key]
        assert completed(customers, name, key, request=asked(alice, customers)) == [key]
        assert completed(customers, name, "carl", request=asked(bob, customers)) == []
        assert completed(customers, name, "carl", request=asked(None, customers)) == []


# Results.


def test_at_most_a_hundred():
    assert completion(range(3)) == {"values": ["0", "1", "2"], "hasMore": False, "total": 3}
    full = completion(range(100))
    assert len(full["values"]) == full["total"] == 100 and full["hasMore"] is False
    more = completion(iter(range(101)))
    assert len(more["values"]) == 100 and more["hasMore"] is True and "total" not in more


def test_what_never_ends_is_cut():
    def forever():
        while True:
            yield "x"

    assert completion(forever())["hasMore"] is True


def test_a_queryset_is_not_loaded_whole(db, django_assert_num_queries):
    Company.objects.bulk_create(Company(name=f"{number:03}") for number in range(150))
    found = Company.objects.order_by("name").values_list("name", flat=True)
    assert isinstance(found, models.QuerySet)
    with django_assert_num_queries(1) as queries:
        shown = completion(found)
    assert shown["values"][99] == "099" and shown["hasMore"] is True
    assert "LIMIT 101" in queries[0]["sql"]


def test_a_sliced_queryset_will_do(db):
    Company.objects.bulk_create(Company(name=f"{number:03}") for number in range(5))
    found = Company.objects.order_by("name").values_list("name", flat=True)[1:3]
    assert completion(found)["values"] == ["001", "002"]


@pytest.mark.parametrize("value", [Tag(label="hidden"), (Tag(label="hidden"),), {"a": 1}])
def test_row_is_no_completion(value):
    """Its text may say anything: no ``fields`` bound it."""
    with pytest.raises(TypeError, match="values_list"):
        completion([value])
