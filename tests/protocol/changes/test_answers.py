"""Answers of older clients are converted to the latest revision."""

import pytest

from django_mcp.protocol.revisions import REVISIONS, decode_answer

from .. import corpus

FIRST, SECOND, THIRD, FOURTH, LATEST = REVISIONS.values()


def content_of(revision, content, **params):
    answer = {"action": "accept", "content": content}
    asked = corpus.ELICITATION | params
    return decode_answer(revision, "elicitation/create", asked, answer)["content"]


@pytest.mark.parametrize(
    ("ticked", "chosen"),
    [
        ({"toppings[c]": True, "toppings[h]": True}, ["c", "h"]),
        ({"toppings[h]": True}, ["h"]),
        ({"toppings[c]": False, "toppings[h]": False}, []),
        ({"toppings[c]": "yes", "toppings[h]": 1}, []),
        ({}, []),
    ],
)
def test_boolean_fields_are_collected_into_a_list(ticked, chosen):
    assert content_of(THIRD, {"name": "A"} | ticked) == {"name": "A", "toppings": chosen}


def test_optional_field_without_an_answer_stays_absent():
    assert "extras" not in content_of(THIRD, {})
    assert content_of(THIRD, {"extras[x]": False})["extras"] == []


def test_answers_of_newer_revisions_are_unchanged():
    for revision in (FOURTH, LATEST):
        assert content_of(revision, {"toppings[c]": True}) == {"toppings[c]": True}


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_answer_without_content_stays_without_content(action):
    answer = {"action": action}
    assert decode_answer(THIRD, "elicitation/create", corpus.ELICITATION, answer) == answer
