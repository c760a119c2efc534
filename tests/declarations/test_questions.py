"""Questions to the client: their parameters, required capabilities, digests and answers."""

import dataclasses
import enum
from functools import partial

import pytest
from django.utils.translation import gettext_lazy

import django_mcp as mcp
from django_mcp.declarations.questions import Question, read_answer
from django_mcp.exceptions import WrongAnswer
from django_mcp.protocol.revisions import LATEST, encode_request
from tests.oracle import message_conforms
from tests.shop.models import Tag

USE = {"type": "tool_use", "id": "1", "name": "add", "input": {}}
TEXT = {"type": "text", "text": "hi"}


class Size(enum.Enum):
    SMALL = "s"


def accept(**content):
    return {"action": "accept", "content": content}


# Parameters.


@pytest.mark.parametrize(
    ("question", "params", "required"),
    [
        (
            mcp.Elicit("Sure?"),
            {"mode": "form", "message": "Sure?", "requestedSchema": {
                "type": "object", "properties": {"answer": {"type": "boolean"}},
                "required": ["answer"]}},
            {"elicitation": {"form": {}}},
        ),
        (
            mcp.Elicit("Pay.", url="https://shop.example/pay"),
            {"mode": "url", "message": "Pay.", "url": "https://shop.example/pay"},
            {"elicitation": {"url": {}}},
        ),
        (
            mcp.Sample("hi"),
            {"messages": [{"role": "user", "content": TEXT}], "maxTokens": 1000},
            {"sampling": {}},
        ),
        (
            mcp.Sample(
                ["hi"], 5, "Be kind.", {"speedPriority": 1}, 0, ["."], "thisServer", {"a": 1},
                [{"name": "add", "inputSchema": {"type": "object"}}], "required",
            ),
            {
                "messages": [{"role": "user", "content": TEXT}], "maxTokens": 5,
                "systemPrompt": "Be kind.", "modelPreferences": {"speedPriority": 1},
                "temperature": 0, "stopSequences": ["."], "includeContext": "thisServer",
                "metadata": {"a": 1}, "toolChoice": {"mode": "required"},
                "tools": [{"name": "add", "inputSchema": {"type": "object"}}],
            },
            {"sampling": {"tools": {}, "context": {}}},
        ),
        (mcp.Roots(), {}, {"roots": {}}),
    ],
)  # fmt: skip
def test_parameters_and_required_capabilities_of_a_question(question, params, required):
    assert question.params() == params and question.required() == required
    assert question.wire() == {"method": question.method, "params": params}
    question.check()
    if "url" not in params:  # a URL question gets its id when it is sent
        message = encode_request(LATEST, "1", question.method, params)
        if message is not None:
            message_conforms(LATEST, message)


@pytest.mark.parametrize("tools", [None, [], ()])
def test_sample_without_tools_does_not_require_tool_support(tools):
    question = mcp.Sample("hi", tools=tools)
    assert question.required() == {"sampling": {}} and "tools" not in question.params()
    assert mcp.Sample("hi", include_context="none").required() == {"sampling": {}}


def test_messages_may_be_lazy_translations():
    question = mcp.Elicit(gettext_lazy("Yes"))
    assert type(question.message) is str and question.params()["message"] == "Yes"
    question.check()
    sample = mcp.Sample(gettext_lazy("Yes"), system=gettext_lazy("No"))
    assert sample.params()["messages"][0]["content"]["text"] == "Yes"
    assert type(sample.params()["systemPrompt"]) is str


def test_questions_are_immutable_and_comparable():
    assert mcp.Elicit("a") == mcp.Elicit("a") != mcp.Elicit("b") and mcp.Roots() == mcp.Roots()
    with pytest.raises(dataclasses.FrozenInstanceError):
        mcp.Elicit("a").message = "b"


def test_base_class_of_questions_is_not_implemented():
    for ask in (Question().params, lambda: Question().read({})):
        with pytest.raises(NotImplementedError):
            ask()
    question = Question()
    assert question.repeat_with_error("wrong") is question and not question.needs_thread
    question.check()


def test_only_django_forms_may_query_rows():
    from django import forms

    assert mcp.Elicit("Who?", forms.Form).needs_thread
    assert not mcp.Elicit("Who?", Size).needs_thread and not mcp.Elicit("Who?").needs_thread


# Digests.


def test_different_questions_have_different_digests():
    questions = [
        mcp.Elicit("Refund 100?"), mcp.Elicit("Refund 5000?"), mcp.Elicit("Refund 100?", str),
        mcp.Elicit("Refund 100?", url="https://a.example"), mcp.Elicit("Refund 100?", Size),
        mcp.Sample("Refund 100?"), mcp.Sample("Refund 100?", 5), mcp.Sample("a", system="b"),
        mcp.Roots(),
    ]  # fmt: skip
    digests = {question.digest(1) for question in questions}
    assert len(digests) == len(questions)


def test_same_question_asked_twice_has_two_digests():
    question = mcp.Elicit("Sure?")
    assert question.digest(1) == mcp.Elicit("Sure?").digest(1) != question.digest(2)
    assert mcp.Sample("a").digest(1) != mcp.Sample("a").digest(2)


def test_roots_have_the_same_digest_when_asked_again():
    assert mcp.Roots().digest(1) == mcp.Roots().digest(2)


def test_key_default_and_timeout_are_not_in_the_digest():
    plain = mcp.Elicit("Sure?")
    other = mcp.Elicit("Sure?", key="a", default=False, timeout=5)
    assert plain.digest(1) == other.digest(1)


def test_text_with_lone_surrogates_has_a_digest():
    assert mcp.Elicit("\ud800").digest(1) != mcp.Elicit("\ud801").digest(1)


# Forbidden questions.


@pytest.mark.parametrize(
    "question",
    [
        mcp.Elicit("Your password?", str),
        mcp.Elicit("Who?", {"type": "object", "properties": {"password": {"type": "string"}}}),
        mcp.Elicit("Pay.", url="javascript:alert(1)"),
        mcp.Elicit("Pay.", url="http://shop.example/pay"),
        mcp.Sample("hi", max_tokens=0),
        mcp.Sample("hi", tool_choice="perhaps"),
    ],
)
def test_forbidden_or_invalid_question_raises(question):
    with pytest.raises(ValueError, match=r"."):
        question.check()


def test_url_with_an_elicitation_id_placeholder_is_valid():
    mcp.Elicit("Pay.", url="https://shop.example/pay?id={elicitation_id}").check()


# Answers.


def test_answer_of_a_form_is_read():
    assert mcp.Elicit("Sure?").read(accept(answer=False)) is False
    assert mcp.Elicit("Which?", Size).read(accept(answer="s")) is Size.SMALL


def test_accepted_url_question_is_true():
    question = mcp.Elicit("Pay.", url="https://shop.example/pay")
    assert question.read({"action": "accept"}) is True


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_declined_question_raises_or_returns_the_default(action):
    with pytest.raises(mcp.Declined) as declined:
        mcp.Elicit("Sure?").read({"action": action})
    assert declined.value.action == action
    for default in (None, False, 5):
        assert mcp.Elicit("Sure?", default=default).read({"action": action}) is default


def test_sample_and_roots_have_no_default():
    for ask in (partial(mcp.Sample, "Hello"), mcp.Roots):
        with pytest.raises(TypeError, match="default"):
            ask(default=None)


@pytest.mark.parametrize(
    "answer",
    [
        {}, {"action": "perhaps"}, {"action": None}, {"action": "accept"},
        {"action": "accept", "content": None}, {"action": "accept", "content": []},
        accept(), accept(answer="yes"), accept(answer=None), accept(other=True),
    ],
)  # fmt: skip
def test_invalid_answer_raises(answer):
    with pytest.raises(WrongAnswer):
        mcp.Elicit("Sure?").read(answer)


def test_repeated_question_contains_the_reason():
    question = mcp.Elicit("How many?", int, key="count")
    repeated = question.repeat_with_error("answer: 'x' is not of type 'integer'")
    assert "'x' is not of type 'integer'" in repeated.message and "How many?" in repeated.message
    assert (repeated.schema, repeated.key) == (int, "count")
    assert mcp.Roots().repeat_with_error("wrong") == mcp.Roots()


def test_answer_of_a_sample_is_read():
    answer = {"content": [TEXT, USE, {"type": "text", "text": "ho"}], "model": "m"}
    sampled = mcp.Sample("hi").read(answer | {"stopReason": "toolUse"})
    assert sampled.text == "hi\nho" and sampled.tool_uses == [USE]
    assert (sampled.model, sampled.role, sampled.stop_reason) == ("m", "assistant", "toolUse")
    assert mcp.Sample("hi").read({"content": TEXT}) == mcp.Sampled([TEXT], "")


@pytest.mark.parametrize("answer", [{}, {"content": "hi"}, {"content": {"type": "nonsense"}}])
def test_invalid_answer_of_a_sample_raises(answer):
    with pytest.raises(WrongAnswer):
        mcp.Sample("hi").read(answer)


def test_answer_of_roots_is_read():
    answer = {"roots": [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b", "name": None}]}
    assert mcp.Roots().read(answer) == [mcp.Root("file:///a", "A"), mcp.Root("file:///b")]
    assert mcp.Roots().read({"roots": []}) == []
    assert mcp.Roots().read({"roots": [{"uri": "FILE:///a"}]}) == [mcp.Root("FILE:///a")]


@pytest.mark.parametrize(
    "uri", ["https://example.com/a", "/a", "file:", "files:///a", "git://a", "", "http://file://"]
)
def test_root_without_a_file_uri_is_refused(uri):
    with pytest.raises(mcp.ClientError, match="file://"):
        mcp.Roots().read({"roots": [{"uri": "file:///a"}, {"uri": uri}]})


@pytest.mark.parametrize("answer", [{}, {"roots": None}, {"roots": ["a"]}, {"roots": [{}]}])
def test_invalid_answer_of_roots_raises(answer):
    with pytest.raises(WrongAnswer):
        mcp.Roots().read(answer)


# Stored answers.


def test_stored_result_is_read():
    assert read_answer(mcp.Elicit("Sure?"), {"result": accept(answer=True)}) is True


@pytest.mark.parametrize("answer", [{}, {"result": None}, {"result": [1]}, {"result": "x"}])
def test_invalid_stored_answer_raises(answer):
    with pytest.raises(WrongAnswer):
        read_answer(mcp.Elicit("Sure?"), answer)


def test_stored_error_of_the_client_raises_client_error():
    with pytest.raises(mcp.ClientError) as error:
        read_answer(mcp.Roots(), {"error": {"code": -1, "message": "No."}})
    assert (error.value.code, error.value.message) == (-1, "No.")
    with pytest.raises(mcp.ClientError, match="answered a question with an error"):
        read_answer(mcp.Roots(), {"error": {"code": None, "message": None}})


def test_stored_timeout_raises_timed_out():
    with pytest.raises(mcp.TimedOut):
        read_answer(mcp.Elicit("Sure?", default=True), {"timeout": 600})


@pytest.mark.parametrize("message", [Tag(label="hidden"), [Tag(label="hidden")], 7, None])
def test_message_that_is_no_text_raises(message):
    with pytest.raises(TypeError, match="message must be text"):
        mcp.Elicit(message)
