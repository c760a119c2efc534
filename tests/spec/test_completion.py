"""Completion, as server/utilities/completion of each revision requires."""

import json
from typing import Annotated, Literal

import pytest

import django_mcp as mcp
from django_mcp.calls import throttling
from tests.shop.models import Customer

from .helpers import request_error, server_info

pytestmark = pytest.mark.django_db
COMPLETE = "completion/complete"


def prompt(name):
    return {"type": "ref/prompt", "name": name}


def template(uri):
    return {"type": "ref/resource", "uri": uri}


def complete(client, ref, name, value, **context):
    params = {"ref": ref, "argument": {"name": name, "value": value}}
    if context:
        params["context"] = {"arguments": context}
    return client.request(COMPLETE, **params)["completion"]


def values(client, ref, name, value, **context):
    return complete(client, ref, name, value, **context)["values"]


@pytest.fixture
def journey(server):
    """A prompt whose arguments complete, and that remembers what was asked."""
    asked = []

    def stations(request, text, context):
        asked.append((text, dict(context)))
        return ["Basel", "Bern"] if context.get("country") == "ch" else []

    @server.prompt(permission=mcp.PUBLIC)
    def journey(
        request,
        country: Literal["ch", "de"],
        station: Annotated[str, mcp.Complete(stations)],
        note: str = "",
    ):
        return f"To {station}."

    return asked


# When there is completion.


def test_completion_capability_is_declared_if_an_argument_completes(
    connect, server, journey, revision
):
    client = connect(server=server, revision=revision, initialize=False)
    found = server_info(client)["capabilities"]
    assert ("completions" in found) is (revision >= "2025-03-26")  # where it has a name
    assert values(client, prompt("journey"), "country", "") == ["ch", "de"]


@pytest.mark.parametrize("kind", ["prompt", "template"])
def test_completion_method_is_unknown_without_completing_arguments(connect, server, revision, kind):
    if kind == "prompt":

        @server.prompt(permission=mcp.PUBLIC)
        def plain(request, word: str):
            return word
    else:

        @server.resource("plain://{word}", permission=mcp.PUBLIC)
        def plain(request, word: str) -> str:
            return word

    client = connect(server=server, revision=revision, initialize=False)
    assert "completions" not in server_info(client)["capabilities"]
    ref = prompt("plain") if kind == "prompt" else template("plain://{word}")
    argument = {"name": "word", "value": ""}
    assert request_error(client, COMPLETE, ref=ref, argument=argument).code == -32601


# What is wrong with a request.


def test_unknown_reference_is_invalid_params(connect, server, journey, revision):
    client = connect(server=server, revision=revision)
    argument = {"name": "country", "value": ""}
    unknown = request_error(client, COMPLETE, ref=prompt("flight"), argument=argument)
    assert (unknown.code, unknown.message) == (-32602, "Unknown prompt: flight")
    nowhere = request_error(client, COMPLETE, ref=template("trip://{id}"), argument=argument)
    assert nowhere.code == (-32602 if revision >= "2026-07-28" else -32002)


def test_missing_parameters_are_invalid_params(connect, server, journey, revision):
    client = connect(server=server, revision=revision)
    ref, argument = prompt("journey"), {"name": "country", "value": "c"}
    assert client.request(COMPLETE, ref=ref, argument=argument)["completion"]["values"] == ["ch"]
    for params in (
        {},
        {"ref": ref},
        {"argument": argument},
        {"ref": ref, "argument": {"name": "country"}},
        {"ref": ref, "argument": {"value": "c"}},
        {"ref": {"type": "ref/prompt"}, "argument": argument},
        {"ref": {"type": "ref/resource"}, "argument": argument},
        {"ref": {"name": "journey"}, "argument": argument},
    ):
        assert request_error(client, COMPLETE, **params).code == -32602, params


WRONG = [None, 1, True, [], ["x"], {}, {"x": 1}]


def test_all_parameters_are_validated_before_the_completion_runs(
    connect, server, journey, revision
):
    client = connect(server=server, revision=revision)
    ref, argument = prompt("journey"), {"name": "station", "value": "B"}

    def code(**params):
        return request_error(client, COMPLETE, **({"ref": ref, "argument": argument} | params)).code

    for wrong in WRONG:
        assert code(ref=wrong) == -32602, wrong
        assert code(argument=wrong) == -32602, wrong
        assert code(ref=prompt(wrong)) == -32602, wrong
        assert code(ref=template(wrong)) == -32602, wrong
        assert code(ref={"type": wrong, "name": "journey"}) == -32602, wrong
        assert code(argument={"name": wrong, "value": "B"}) == -32602, wrong
        assert code(argument={"name": "station", "value": wrong}) == -32602, wrong
        assert code(context={"arguments": {"country": wrong}}) == -32602, wrong
        if not isinstance(wrong, dict | None):
            assert code(context={"arguments": wrong}) == -32602, wrong
            assert code(context=wrong) == -32602, wrong
    assert code(ref={"type": "ref/tool", "name": "journey"}) == -32602
    assert code(argument={"name": "town", "value": "B"}) == -32602
    assert code(argument={"name": "__class__", "value": "B"}) == -32602
    assert journey == []


@pytest.mark.parametrize("context", [{}, {"arguments": {}}])
def test_context_may_be_empty(connect, server, journey, revision, context):
    client = connect(server=server, revision=revision)
    argument = {"name": "station", "value": "B"}
    client.request(COMPLETE, ref=prompt("journey"), argument=argument, context=context)
    assert journey == [("B", {})]


def test_completion_receives_the_context_arguments(connect, server, journey, revision):
    client = connect(server=server, revision=revision)
    found = complete(client, prompt("journey"), "station", "B", country="ch")
    assert found == {"values": ["Basel", "Bern"], "total": 2, "hasMore": False}
    assert values(client, prompt("journey"), "station", "B", country="de") == []
    assert journey == [("B", {"country": "ch"}), ("B", {"country": "de"})]


def test_argument_without_completion_gets_no_values(connect, server, journey, revision):
    client = connect(server=server, revision=revision)
    assert complete(client, prompt("journey"), "note", "x") == {
        "values": [],
        "total": 0,
        "hasMore": False,
    }


def test_long_argument_value_is_truncated(connect, server, journey):
    client = connect(server=server)
    values(client, prompt("journey"), "station", "x" * 100_000)
    assert len(journey[0][0]) == 1000


def test_unexpected_exception_is_a_masked_internal_error(connect, server, revision, caplog):
    error = RuntimeError("the password is hunter2")

    def broken(request, text):
        raise error

    @server.prompt(permission=mcp.PUBLIC)
    def visit(request, city: Annotated[str, mcp.Complete(broken)]):
        return city

    client = connect(server=server, revision=revision)
    argument = {"name": "city", "value": ""}
    refused = request_error(client, COMPLETE, ref=prompt("visit"), argument=argument)
    assert refused.code == -32603 and "hunter2" not in f"{refused}"
    assert caplog.records[-1].exc_info[1] is error


# What is suggested.


@pytest.fixture
def paint(server):
    Colour = Literal["dark red", "light red", "red", "Redwood", "blue"]

    @server.prompt(permission=mcp.PUBLIC)
    def paint(request, colour: Colour, glossy: bool = False):
        return f"Paint it {colour}."

    paint.__annotations__["colour"] = Colour


def test_best_matches_come_first(connect, server, paint, revision):
    client = connect(server=server, revision=revision)
    found = values(client, prompt("paint"), "colour", "red")
    assert found == ["red", "Redwood", "dark red", "light red"]
    assert values(client, prompt("paint"), "colour", "RED") == found
    assert values(client, prompt("paint"), "glossy", "t") == ["true"]


@pytest.fixture
def customers(server, invoice):
    """Customers of which each sees those of their companies."""

    @server.register(Customer)
    class Customers(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["name", "company"]
        search_fields = ["name"]
        ordering = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

    @server.prompt(permission=mcp.PUBLIC)
    def remind(request, customer: Customer):
        return customer.name

    def made(name, **values):
        company = values.pop("company", invoice.company)
        return str(Customer.objects.create(company=company, name=name, **values).pk)

    return made


def test_exact_primary_key_comes_first(connect, server, alice, customers, revision):
    wanted = customers("Zoe")
    other = customers(f"Anna {wanted}")
    client = connect(alice, server=server, revision=revision)
    assert values(client, prompt("remind"), "customer", wanted) == [wanted, other]


def test_words_anywhere_in_the_text_match(connect, server, alice, paint, customers, revision):
    key = customers("Maria Theresa van Dyck")
    client = connect(alice, server=server, revision=revision)
    for text in ("dyck", "resa", "dyck maria", "VAN"):
        assert values(client, prompt("remind"), "customer", text) == [key], text
        assert values(client, template("model://shop/customer/{pk}"), "pk", text) == [key], text
    assert values(client, prompt("remind"), "customer", "dyck joseph") == []
    assert values(client, prompt("paint"), "colour", "ight") == ["light red"]


def test_at_most_one_hundred_values_are_returned(connect, server, alice, customers, revision):
    for number in range(101):
        customers(f"Smith {number:03}")
    client = connect(alice, server=server, revision=revision)
    found = complete(client, prompt("remind"), "customer", "smith")
    assert len(found["values"]) == 100 and found["hasMore"] is True and "total" not in found


def test_completions_are_limited(connect, server, alice, bob, paint, revision, settings):
    number, seconds = throttling.process_rate("completions")  # without any setting
    assert 0 < number / seconds <= 100
    settings.DJANGO_MCP = {"THROTTLES": {"completions": "2/month"}}
    client = connect(alice, server=server, revision=revision)
    for _ in range(2):
        assert values(client, prompt("paint"), "colour", "b") == ["blue"]
    argument = {"name": "colour", "value": "b"}
    refused = request_error(client, COMPLETE, ref=prompt("paint"), argument=argument)
    assert "Try again in" in refused.message
    assert values(connect(bob, server=server), prompt("paint"), "colour", "b") == ["blue"]


# Who is told what.


def test_invisible_rows_are_not_suggested(
    connect, server, alice, bob, invoice, customers, revision
):
    theirs = customers("Theodora", email="secret@shop.example", notes="hunter2")
    for user, found in ((alice, [theirs]), (bob, []), (None, [])):
        client = connect(user, server=server, revision=revision)
        for text in ("theod", theirs):
            assert values(client, prompt("remind"), "customer", text) == found


def test_hidden_fields_and_wildcards_do_not_match(connect, server, alice, customers, revision):
    customers("Theodora", email="secret@shop.example", notes="hunter2")
    client = connect(alice, server=server, revision=revision)
    for text in ("secret", "hunter2", "%", "_", "*", ".*", "' OR 1=1 --", "\0", '"'):
        assert values(client, prompt("remind"), "customer", text) == [], text


@pytest.mark.parametrize("permission", [None, "shop.add_note", lambda request: False])
def test_forbidden_objects_complete_like_unknown_ones(connect, server, bob, revision, permission):
    asked = []

    def cities(request, text):
        asked.append(text)
        return ["Paris"]

    options = {} if permission is None else {"permission": permission}
    City = Annotated[str, mcp.Complete(cities)]

    def visit(request, city):
        return city

    visit.__annotations__["city"] = City
    server.prompt(**options)(visit)
    server.resource("city://{city}", **options)(visit)
    client = connect(None if permission is None else bob, server=server, revision=revision)
    # Nor is it told which arguments there are, or what of them is wrong.
    for argument in ({"name": "city", "value": ""}, {"name": "none", "value": ""}, {"name": 1}):
        for ref in (prompt("visit"), template("city://{city}"), template("city://rome")):
            other = json.loads(json.dumps(ref).replace("visit", "other").replace("city:", "none:"))
            refused = request_error(client, COMPLETE, ref=ref, argument=argument)
            unknown = request_error(client, COMPLETE, ref=other, argument=argument)
            assert refused.code == unknown.code
            assert refused.message == unknown.message.replace("other", "visit")
    assert asked == []
