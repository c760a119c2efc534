"""Answers to questions in tests, and the encoding of arguments."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from django.utils.translation import gettext_lazy

import django_mcp as mcp
from django_mcp.declarations.server import default_server
from django_mcp.testing import CANCEL, DECLINE, Unanswered
from django_mcp.testing.async_client import as_json, as_text, as_uri
from django_mcp.testing.peers import Answers
from tests.shop.models import Invoice, LedgerLine, Tag

ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
ONE = {"message": "Sure?", "requestedSchema": {"properties": {"answer": {}}}}
TWO = {"message": "Who?", "requestedSchema": {"properties": {"name": {}, "age": {}}}}
PAGE = {"message": "Sign in.", "mode": "url", "url": "https://shop.example/in"}


async def call_directly(function, *args):
    return function(*args)


def answer(method, params, **given):
    return asyncio.run(Answers(**given).answer(method, params, call_directly))


@pytest.mark.parametrize("given", [True, {"answer": True}, lambda message, schema: True])
def test_form_with_one_field_is_answered_with_a_value(given):
    expected = {"action": "accept", "content": {"answer": True}}
    assert answer(ELICIT, ONE, elicit=given) == expected


def test_form_with_several_fields_is_answered_with_a_dict():
    content = {"name": "Ada", "age": 36}
    assert answer(ELICIT, TWO, elicit=content) == {"action": "accept", "content": content}
    with pytest.raises(TypeError, match="'Ada' does not fill in a form of name, age"):
        answer(ELICIT, TWO, elicit="Ada")


def test_function_that_returns_none_raises():
    with pytest.raises(TypeError, match="None does not fill in a form of answer"):
        answer(ELICIT, ONE, elicit=lambda message, schema: None)


@pytest.mark.parametrize(("given", "action"), [(DECLINE, "decline"), (CANCEL, "cancel")])
def test_question_is_declined_or_cancelled(given, action):
    assert answer(ELICIT, ONE, elicit=given) == {"action": action}
    assert answer(ELICIT, PAGE, visit=given) == {"action": action}


def test_url_question_is_answered_by_a_function():
    calls = []
    assert answer(ELICIT, PAGE, visit=lambda *args: not calls.append(args)) == {"action": "accept"}
    assert calls == [("Sign in.", "https://shop.example/in")]
    with pytest.raises(TypeError, match="says nothing of a page"):
        answer(ELICIT, PAGE, visit="yes")
    with pytest.raises(Unanswered, match=r"answers\(visit=\.\.\.\)"):
        answer(ELICIT, PAGE, elicit=True)


def test_sampling_is_answered_with_text_or_a_dict():
    sampled = answer(SAMPLE, {"messages": [1, 2]}, sample=lambda messages: f"{len(messages)} said")
    assert (
        sampled["content"] == {"type": "text", "text": "2 said"} and sampled["role"] == "assistant"
    )
    own = answer(SAMPLE, {"messages": []}, sample={"content": [], "stopReason": "toolUse"})
    assert (own["content"], own["stopReason"], own["role"]) == ([], "toolUse", "assistant")


def test_roots_are_given_as_uris_pairs_or_dicts():
    given = ["file:///a", ("file:///b", "B"), {"uri": "file:///c"}]
    expected = [{"uri": "file:///a"}, {"uri": "file:///b", "name": "B"}, {"uri": "file:///c"}]
    assert answer(ROOTS, {}, roots=given) == {"roots": expected}
    assert answer(ROOTS, {}, roots=lambda: given) == {"roots": expected}


def test_later_answer_replaces_an_earlier_one():
    answers = Answers(elicit=True)
    answers.give(elicit=False)
    found = asyncio.run(answers.answer(ELICIT, ONE, call_directly))
    assert found["content"] == {"answer": False}


# Encoding of arguments.


@dataclass
class Point:
    x: int
    at: date


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (Decimal("1.50"), "1.50"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC), "2026-01-02T03:04:05.678901Z"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Invoice.Status.PAID, "paid"),
        (Point(1, date(2026, 1, 2)), {"x": 1, "at": "2026-01-02"}),
        (gettext_lazy("Hello"), "Hello"),
        ({"a": [1, None, True]}, {"a": [1, None, True]}),
    ],
)
def test_python_values_are_encoded_as_json(given, written):
    assert as_json(default_server, given) == written
    assert as_json(default_server, {"deep": [given]}) == {"deep": [written]}


def test_rows_are_encoded_as_the_keys_of_their_resource(invoice):
    assert as_json(default_server, {"one": invoice}) == {"one": "A-1"}
    assert as_json(default_server, [invoice.customer]) == [invoice.customer.pk]
    assert as_json(default_server, Invoice.objects.all()) == ["A-1"]
    assert as_text(default_server, invoice.customer) == str(invoice.customer.pk)


def test_row_without_a_resource_is_encoded_as_its_primary_key(db, server):
    tag = Tag.objects.create(label="red")
    assert as_json(default_server, tag) == tag.pk
    line = LedgerLine(company_id=3, line=4)
    assert as_json(server, line) == [3, 4]


def test_prompt_arguments_are_encoded_as_text():
    assert as_text(default_server, "plain") == "plain"
    assert as_text(default_server, 3) == "3"
    assert as_text(default_server, True) == "true"
    assert as_text(default_server, date(2026, 1, 2)) == "2026-01-02"


def test_uri_of_a_row(invoice):
    assert as_uri(default_server, invoice) == "invoice://A-1"
    assert as_uri(default_server, "policy://returns") == "policy://returns"
    with pytest.raises(ValueError, match="shop.Tag is not registered"):
        as_uri(default_server, Tag(label="red"))


def test_value_that_no_client_can_send_raises():
    with pytest.raises(TypeError, match="nothing that a client can send"):
        as_json(mcp.server, object())
