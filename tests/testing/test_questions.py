"""Answers to questions: what a test gives, as the protocol has it."""

from __future__ import annotations

import asyncio

import pytest

from django_mcp.testing import CANCEL, DECLINE, Unanswered
from django_mcp.testing.questions import Answers

ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
ONE = {"message": "Sure?", "requestedSchema": {"properties": {"answer": {}}}}
TWO = {"message": "Who?", "requestedSchema": {"properties": {"name": {}, "age": {}}}}
PAGE = {"message": "Sign in.", "mode": "url", "url": "https://shop.example/in"}


async def plainly(function, *args):
    return function(*args)


def answered(method, params, **given):
    return asyncio.run(Answers(**given).answer(method, params, plainly))


@pytest.mark.parametrize("given", [True, {"answer": True}, lambda message, schema: True])
def test_a_form_of_one_field(given):
    expected = {"action": "accept", "content": {"answer": True}}
    assert answered(ELICIT, ONE, elicit=given) == expected


def test_a_form_of_more():
    content = {"name": "Ada", "age": 36}
    assert answered(ELICIT, TWO, elicit=content) == {"action": "accept", "content": content}
    with pytest.raises(TypeError, match="'Ada' does not fill in a form of name, age"):
        answered(ELICIT, TWO, elicit="Ada")


def test_a_function_that_forgets_to_answer():
    with pytest.raises(TypeError, match="None does not fill in a form of answer"):
        answered(ELICIT, ONE, elicit=lambda message, schema: None)


@pytest.mark.parametrize(("given", "action"), [(DECLINE, "decline"), (CANCEL, "cancel")])
def test_no_answer(given, action):
    assert answered(ELICIT, ONE, elicit=given) == {"action": action}
    assert answered(ELICIT, PAGE, visit=given) == {"action": action}


def test_a_page():
    seen = []
    assert answered(ELICIT, PAGE, visit=lambda *args: not seen.append(args)) == {"action": "accept"}
    assert seen == [("Sign in.", "https://shop.example/in")]
    with pytest.raises(TypeError, match="says nothing of a page"):
        answered(ELICIT, PAGE, visit="yes")
    with pytest.raises(Unanswered, match=r"answers\(visit=\.\.\.\)"):
        answered(ELICIT, PAGE, elicit=True)


def test_samples():
    said = answered(SAMPLE, {"messages": [1, 2]}, sample=lambda messages: f"{len(messages)} said")
    assert said["content"] == {"type": "text", "text": "2 said"} and said["role"] == "assistant"
    own = answered(SAMPLE, {"messages": []}, sample={"content": [], "stopReason": "toolUse"})
    assert (own["content"], own["stopReason"], own["role"]) == ([], "toolUse", "assistant")


def test_roots():
    given = ["file:///a", ("file:///b", "B"), {"uri": "file:///c"}]
    expected = [{"uri": "file:///a"}, {"uri": "file:///b", "name": "B"}, {"uri": "file:///c"}]
    assert answered(ROOTS, {}, roots=given) == {"roots": expected}
    assert answered(ROOTS, {}, roots=lambda: given) == {"roots": expected}


def test_what_is_given_later_counts():
    answers = Answers(elicit=True)
    answers.give(elicit=False)
    found = asyncio.run(answers.answer(ELICIT, ONE, plainly))
    assert found["content"] == {"answer": False}
