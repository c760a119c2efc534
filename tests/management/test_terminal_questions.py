"""Questions at a terminal: fields, validation, defaults and declining."""

from __future__ import annotations

import asyncio
import io

import pytest
from django.core.management import CommandError

from django_mcp.management.commands.mcp_call import TerminalQuestions
from django_mcp.testing.peers import CANCEL, DECLINE

SIZES = [{"const": "s", "title": "Small"}, {"const": "m", "title": "Medium"}]
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2},
        "age": {"type": "integer", "minimum": 0},
        "size": {"type": "string", "oneOf": SIZES, "default": "m"},
        "gift": {"type": "boolean", "default": False},
        "days": {"type": "array", "items": {"type": "string", "enum": ["mon", "tue"]}},
    },
    "required": ["name", "age"],
}
ONE = {"type": "object", "properties": {"answer": {"type": "boolean"}}, "required": ["answer"]}


class Terminal:
    """A terminal at which these lines are typed, and its output."""

    def __init__(self, *lines, answers=(), answers_yes=False, can_prompt=True):
        self.shown = io.StringIO()
        typed = io.StringIO("".join(f"{line}\n" for line in lines))
        self.questions = TerminalQuestions(
            typed, self.shown.write, answers, answers_yes=answers_yes, can_prompt=can_prompt
        )

    def __getattr__(self, name):
        return lambda *arguments: asyncio.run(getattr(self.questions, name)(*arguments))


def test_form_is_asked_field_by_field():
    one = Terminal("Ann", "7", "s", "yes", "mon, tue")
    answer = one.elicit("Who are you?", FORM)
    assert answer == {"name": "Ann", "age": 7, "size": "s", "gift": True, "days": ["mon", "tue"]}
    shown = one.shown.getvalue()
    assert shown.startswith("Who are you?\nYour name (text of at least 2 characters):")
    assert "age (whole number of at least 0):" in shown
    assert "  s  Small\n  m  Medium\nsize (one of s, m) [m]:" in shown


def test_empty_input_uses_the_default_or_omits_the_field():
    answer = Terminal("Ann", "7", "", "", "").elicit("Who?", FORM)
    assert answer == {"name": "Ann", "age": 7, "size": "m", "gift": False}


def test_invalid_input_is_asked_again():
    one = Terminal("", "A", "Ann", "-1", "old", "7", "x", "m", "", "wed", "")
    assert one.elicit("Who?", FORM)["age"] == 7
    shown = one.shown.getvalue()
    assert shown.count("Your name (") == 3 and shown.count("age (") == 3
    assert "It is required; Ctrl-D declines to answer." in shown
    assert "name: 'A' is too short (text of at least 2 characters)" in shown
    assert "age: 'old' is not of type 'integer'" in shown and "'wed' is not one of" in shown


def test_required_text_cannot_be_empty():
    form = {"properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    assert Terminal("", " ", "x").elicit("Which?", form) == {"answer": "x"}


def test_single_field_is_asked_without_its_name():
    one = Terminal("y")
    assert one.elicit("Sure?", ONE) == {"answer": True}
    assert one.shown.getvalue() == "Sure?\n(yes or no): "


def test_end_of_input_declines():
    assert Terminal().elicit("Sure?", ONE) is DECLINE
    assert Terminal("Ann").elicit("Who?", FORM) is DECLINE
    assert Terminal().visit("Sign in.", "https://a.example") is DECLINE
    with pytest.raises(CommandError, match="got none"):  # a sample cannot be declined
        Terminal().sample([])


def test_keyboard_interrupt_cancels(monkeypatch):
    one = Terminal()

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(one.questions._input_stream, "readline", interrupted, raising=False)
    assert one.elicit("Sure?", ONE) is CANCEL


def test_url_is_shown_until_enter_is_pressed():
    one = Terminal("")
    assert one.visit("Sign in.", "https://a.example/x") is True
    assert "Sign in.\nhttps://a.example/x\n" in one.shown.getvalue()


def test_sampling_is_answered_at_the_terminal():
    one = Terminal("Hello, Ann.")
    message = {"role": "user", "content": {"type": "text", "text": "Greet Ann."}}
    assert one.sample([message]) == "Hello, Ann."
    assert "  user: Greet Ann.\n" in one.shown.getvalue()


def test_given_answers_are_not_asked_again():
    one = Terminal("7", answers=["name=Ann", "days=mon", "days=tue"], answers_yes=True)
    answer = one.elicit("Who?", FORM | {"properties": dict(list(FORM["properties"].items())[:2])})
    assert answer == {"name": "Ann", "age": 7}
    one = Terminal(
        answers=["name=Ann", "age=7", "days=mon", "days=tue"], answers_yes=True, can_prompt=False
    )
    known = {"name": "Ann", "age": 7, "gift": True, "days": ["mon", "tue"]}
    assert one.elicit("Who?", FORM) == known


def test_question_without_a_terminal_is_an_error():
    with pytest.raises(CommandError, match="The tool asks: Sure") as error:
        Terminal(can_prompt=False).elicit("Sure?", ONE)
    assert "(yes or no)" in str(error.value)
    with pytest.raises(CommandError, match="Run the command in a terminal"):
        Terminal(can_prompt=False).visit("Sign in.", "https://a.example")
    with pytest.raises(CommandError, match="'old' is not of type 'integer'"):
        Terminal(answers=["name=Ann", "age=old"], can_prompt=False).elicit("Who?", FORM)


def test_form_without_all_required_answers_is_an_error_without_a_terminal():
    with pytest.raises(CommandError, match="--answer age=VALUE") as error:
        Terminal(answers=["name=Ann"], can_prompt=False).elicit("Who?", FORM)
    assert "name=" not in str(error.value)


@pytest.mark.parametrize("given", ["yes", "answer:=true", "=x"])
def test_answer_without_a_key_is_an_error(given):
    with pytest.raises(CommandError, match="write --answer KEY=VALUE"):
        Terminal(answers=[given])


def test_control_characters_in_questions_are_replaced():
    one = Terminal("y")
    one.elicit("Sure?\x1b[2J\x07", ONE)
    assert one.shown.getvalue().startswith("Sure??[2J?\n")
