"""``mcp.Request``: user, notifications, questions to the client and steps that run once."""

import asyncio

import pytest
from django import forms

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal
from django_mcp.declarations.request import (
    ClientCapabilities,
    KnownAnswers,
    NoNotifier,
    StopFlag,
)
from django_mcp.exceptions import InputRequired, OnceNeeded, RunEnded, Stopped

from .helpers import make_request

EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
PAY = "https://shop.example/pay"


class RecordingNotifier:
    """Records progress and log messages, in order."""

    def __init__(self):
        self.messages = []

    def progress(self, done, total, message):
        self.messages.append((done, total, message))

    def log(self, level, data, logger):
        self.messages.append((level, data, logger))

    async def apause(self):
        pass


def capable_request(answers=None, **options):
    """Return a request of a client that supports all kinds of questions."""
    return make_request(offered=lambda: EVERYTHING, answers=answers, **options)


def asked_question(ask):
    """Return the only question that ``ask`` raises: its wire key, digest and question."""
    with pytest.raises(InputRequired) as unwound:
        ask()
    (question,) = unwound.value.questions.values()
    return question


def accepted(answer=True):
    return {"result": {"action": "accept", "content": {"answer": answer}}}


def answers_to(*questions, answer=None):
    """Return known answers to questions that were asked."""
    answer = accepted() if answer is None else answer
    return KnownAnswers(known={question[1]: answer for question in questions})


# User, token and client.


def test_request_has_user_client_and_metadata(alice):
    request = make_request(
        alice, revision="2025-06-18", client_info={"name": "c"}, meta={"traceparent": "t"}
    )
    assert request.user is alice and request.auth is None and request.server is mcp.server
    assert request.revision == "2025-06-18" and request.client_info == {"name": "c"}
    assert request.meta == {"traceparent": "t"} and request._host is None


def test_request_has_the_auth_of_its_token(alice):
    auth = Auth(frozenset({"read"}), "app")
    request = mcp.Request(Principal(alice, auth), mcp.server)
    assert request.auth is auth and request.user is alice


def test_request_can_be_created_from_principal_and_server():
    request = mcp.Request(make_request().principal, mcp.server)
    assert request.user.is_anonymous and request.client_info == request.meta == {}
    assert not request.cancelled and not request.can.elicit
    request.progress(1)
    request.log("info", "nobody listens")
    assert NoNotifier().progress(1, None, None) is NoNotifier().log("info", 1, None) is None


def test_request_has_an_http_request_and_no_session(alice):
    request = make_request(alice)
    assert not hasattr(request, "session")
    assert request.http.user is alice and request.http is request.http


# Progress and log messages.


def test_progress_and_log_reach_the_notifier():
    notifier = RecordingNotifier()
    request = make_request(notifier=notifier)
    request.progress(1, 2, "half")
    request.progress(2.5)
    request.log("info", {"a": 1}, logger="shop")
    assert notifier.messages == [(1, 2, "half"), (2.5, None, None), ("info", {"a": 1}, "shop")]


def test_cancelled_call_sends_no_notifications_and_asks_no_questions():
    notifier, stop = RecordingNotifier(), StopFlag()
    stop.set()
    request = make_request(notifier=notifier, stop=stop, offered=lambda: EVERYTHING)
    assert request.cancelled
    for act in (
        lambda: request.progress(1), lambda: request.log("info", 1), lambda: request.elicit("?"),
        lambda: request.sample("hi"), lambda: request.roots(), lambda: request.ask(),
        lambda: request.once("a", print),
    ):  # fmt: skip
        with pytest.raises(Stopped):
            act()
    assert notifier.messages == []


def test_notifications_before_the_last_known_answer_are_not_repeated():
    first = asked_question(lambda: capable_request().elicit("One?"))
    second = asked_question(lambda: capable_request().elicit("Two?"))
    notifier = RecordingNotifier()
    request = capable_request(answers_to(first, second), notifier=notifier)
    request.progress(1)
    request.elicit("One?")
    request.log("info", "between")
    assert notifier.messages == []
    request.elicit("Two?")
    request.progress(2)
    request.log("info", "after")
    assert notifier.messages == [(2, None, None), ("info", "after", None)]


def test_notifications_before_a_completed_step_are_not_repeated():
    notifier = RecordingNotifier()
    request = capable_request(KnownAnswers(remembered={"a": 1}), notifier=notifier)
    request.progress(1)
    assert request.once("a", print) == 1
    request.progress(2)
    assert notifier.messages == [(2, None, None)]


# Questions.


def test_question_without_an_answer_unwinds_the_call():
    request = capable_request()
    key, digest, question = asked_question(lambda: request.elicit("Sure?"))
    assert key == digest == question.digest(1) and question == mcp.Elicit("Sure?", bool)
    for ask in (
        lambda: capable_request().sample("hi", max_tokens=5),
        lambda: capable_request().roots(),
    ):
        asked_question(ask)


def test_except_exception_does_not_catch_a_question():
    with pytest.raises(RunEnded):
        try:
            capable_request().elicit("Sure?")
        except Exception:
            pytest.fail("caught")


def test_known_answer_is_returned():
    question = asked_question(lambda: capable_request().elicit("Sure?"))
    assert capable_request(answers_to(question)).elicit("Sure?") is True
    sample = asked_question(lambda: capable_request().sample("hi"))
    answer = {"result": {"content": {"type": "text", "text": "ho"}, "model": "m"}}
    assert capable_request(answers_to(sample, answer=answer)).sample("hi").text == "ho"
    roots = asked_question(lambda: capable_request().roots())
    answer = {"result": {"roots": [{"uri": "file:///a"}]}}
    assert capable_request(answers_to(roots, answer=answer)).roots() == [mcp.Root("file:///a")]


def test_answer_of_another_question_is_not_used():
    """Consent to a refund of 100 is no consent to one of 5000."""
    question = asked_question(lambda: capable_request().elicit("Refund 100?"))
    request = capable_request(answers_to(question))
    asked_anew = asked_question(lambda: request.elicit("Refund 5000?"))
    assert asked_anew[2].message == "Refund 5000?" and asked_anew[1] != question[1]
    asked_question(lambda: capable_request(answers_to(question)).elicit("Refund 100?", str))


def test_same_question_asked_twice_has_two_answers():
    first = asked_question(lambda: capable_request().elicit("Again?"))
    request = capable_request(answers_to(first))
    assert request.elicit("Again?") is True
    second = asked_question(lambda: request.elicit("Again?"))
    answers = KnownAnswers(known={first[1]: accepted(True), second[1]: accepted(False)})
    request = capable_request(answers)
    assert [request.elicit("Again?"), request.elicit("Again?")] == [True, False]


def test_roots_are_requested_only_once():
    roots = asked_question(lambda: capable_request().roots())
    request = capable_request(answers_to(roots, answer={"result": {"roots": []}}))
    assert request.roots() == request.roots() == []


def test_url_question_unwinds_the_call():
    _, _, question = asked_question(lambda: capable_request().elicit("Pay.", url=PAY))
    assert question == mcp.Elicit("Pay.", None, url=PAY)


def test_declined_answer_raises_or_returns_the_default():
    question = asked_question(lambda: capable_request().elicit("Sure?"))
    answers = answers_to(question, answer={"result": {"action": "decline"}})
    with pytest.raises(mcp.Declined):
        capable_request(answers).elicit("Sure?")
    assert capable_request(answers).elicit("Sure?", default=None) is None


@pytest.mark.parametrize(
    ("answer", "error"),
    [({"error": {"code": -1, "message": "No."}}, mcp.ClientError), ({"timeout": 1}, mcp.TimedOut)],
)
def test_client_error_and_timeout_are_raised_by_the_question(answer, error):
    question = asked_question(lambda: capable_request().elicit("Sure?"))
    with pytest.raises(error):
        capable_request(answers_to(question, answer=answer)).elicit("Sure?", default=None)


@pytest.mark.parametrize(
    "answer", [accepted("x"), {"result": {"action": "accept"}}, {"result": 5}, {}]
)
def test_invalid_answer_repeats_the_question_with_the_reason(answer):
    question = asked_question(lambda: capable_request().elicit("Sure?"))
    answers = answers_to(question, answer=answer)
    key, digest, again = asked_question(lambda: capable_request(answers).elicit("Sure?"))
    assert digest == question[1] and "Sure?" in again.message and again.message != "Sure?"
    assert digest not in answers.known


# Named answers that the client sent unasked.


def named_answers(**answers):
    return KnownAnswers(
        named={name: {"result": answer["result"]} for name, answer in answers.items()}
    )


def test_valid_named_answer_is_used():
    answers = named_answers(sure=accepted())
    assert capable_request(answers).elicit("Sure?", key="sure") is True
    assert list(answers.known.values()) == [accepted()]  # the answer is known from now on


def test_invalid_named_answer_repeats_the_question():
    key, _, again = asked_question(
        lambda: capable_request(named_answers(sure=accepted("x"))).elicit("Sure?", key="sure")
    )
    assert key == "sure" and "Sure?" in again.message


def test_named_answer_is_used_for_one_question_only():
    """A later question with the same key is asked."""
    request = capable_request(named_answers(sure=accepted()))
    assert request.elicit("Refund 100?", key="sure") is True
    key, _, question = asked_question(lambda: request.elicit("Delete everything?", key="sure"))
    assert key == "sure" and question.message == "Delete everything?"


def test_question_without_a_key_uses_no_named_answer():
    digest = asked_question(lambda: capable_request().elicit("Sure?"))[1]
    for name in ("", "sure", digest):
        asked_question(
            lambda name=name: capable_request(named_answers(**{name: accepted()})).elicit("Sure?")
        )


def test_known_answer_takes_precedence_over_named_answer():
    question = asked_question(lambda: capable_request().elicit("Sure?", key="sure"))
    answers = KnownAnswers(known={question[1]: accepted(False)}, named={"sure": accepted(True)})
    assert capable_request(answers).elicit("Sure?", key="sure") is False


# Several questions at once.


def test_several_questions_are_asked_at_once():
    request = capable_request()
    with pytest.raises(InputRequired) as unwound:
        request.ask(sure=mcp.Elicit("Sure?"), word=mcp.Sample("A word."), where=mcp.Roots())
    found = unwound.value.questions
    assert [found[name][0] for name in found] == ["sure", "word", "where"] == list(found)


def test_only_questions_without_a_known_answer_are_asked():
    question = asked_question(lambda: capable_request().ask(a=mcp.Elicit("A?")))
    request = capable_request(answers_to(question))
    with pytest.raises(InputRequired) as unwound:
        request.ask(a=mcp.Elicit("A?"), b=mcp.Elicit("B?"))
    assert list(unwound.value.questions) == ["b"]
    other = unwound.value.questions["b"]
    request = capable_request(answers_to(question, other))
    assert request.ask(a=mcp.Elicit("A?"), b=mcp.Elicit("B?")) == {"a": True, "b": True}


def test_ask_without_questions_returns_an_empty_dict():
    assert capable_request().ask() == {}


def test_wire_key_is_the_key_or_the_argument_name():
    with pytest.raises(InputRequired) as unwound:
        capable_request().ask(a=mcp.Elicit("A?", key="x"), b=mcp.Elicit("B?"))
    found = unwound.value.questions
    assert {name: asking[0] for name, asking in found.items()} == {"a": "x", "b": "b"}


def test_two_questions_with_the_same_key_raise():
    with pytest.raises(ValueError, match="must have its own key"):
        capable_request().ask(a=mcp.Elicit("A?", key="b"), b=mcp.Elicit("B?"))
    with pytest.raises(ValueError, match="must have its own key"):
        capable_request().ask(a=mcp.Elicit("A?", key="x"), b=mcp.Elicit("B?", key="x"))


def test_declined_question_raises_after_all_are_answered():
    with pytest.raises(InputRequired) as unwound:
        capable_request().ask(a=mcp.Elicit("A?"), b=mcp.Elicit("B?"))
    a, b = unwound.value.questions.values()
    declined = {"result": {"action": "decline"}}
    with pytest.raises(InputRequired):
        capable_request(KnownAnswers(known={a[1]: declined})).ask(
            a=mcp.Elicit("A?"), b=mcp.Elicit("B?")
        )
    with pytest.raises(mcp.Declined):
        capable_request(KnownAnswers(known={a[1]: declined, b[1]: accepted()})).ask(
            a=mcp.Elicit("A?"), b=mcp.Elicit("B?")
        )


def test_question_may_be_named_self():
    with pytest.raises(InputRequired) as unwound:
        capable_request().ask(self=mcp.Elicit("A?"))
    assert list(unwound.value.questions) == ["self"]


# Unsupported questions.


@pytest.mark.parametrize(
    ("ask", "required"),
    [
        (lambda request: request.elicit("Sure?"), {"elicitation": {"form": {}}}),
        (lambda request: request.elicit("Pay.", url=PAY), {"elicitation": {"url": {}}}),
        (lambda request: request.sample("hi"), {"sampling": {}}),
        (
            lambda request: request.sample("hi", tools=[{"name": "a", "inputSchema": {}}]),
            {"sampling": {"tools": {}}},
        ),
        (lambda request: request.roots(), {"roots": {}}),
    ],
)
def test_question_that_the_client_does_not_support_raises(ask, required):
    with pytest.raises(mcp.Unsupported) as refused:
        ask(make_request())
    assert refused.value.required == required


def test_known_answer_does_not_require_client_support():
    question = asked_question(lambda: capable_request().elicit("Sure?"))
    assert make_request(answers=answers_to(question)).elicit("Sure?") is True


@pytest.mark.parametrize(
    "ask",
    [
        lambda request: request.elicit("Sure?"),
        lambda request: request.sample("hi"),
        lambda request: request.roots(),
        lambda request: request.ask(a=mcp.Roots()),
        lambda request: request.once("a", print),
    ],
)
def test_question_in_lists_or_completion_raises(ask):
    request = capable_request()
    request._may_ask = False
    with pytest.raises(RuntimeError, match="in lists, completion or on commit"):
        ask(request)


def test_known_answers_are_returned_in_lists_and_completion():
    question = asked_question(lambda: capable_request().elicit("Sure?"))
    answers = KnownAnswers(known={question[1]: accepted()}, remembered={"a": 1})
    request = capable_request(answers)
    request._may_ask = False
    assert request.elicit("Sure?") is True and request.once("a", print) == 1


class Secret(forms.Form):
    pin = forms.CharField()


@pytest.mark.parametrize(
    "ask",
    [
        lambda request: request.elicit("Your password?", str),
        lambda request: request.elicit("Pay.", url="http://shop.example"),
        lambda request: request.sample("hi", max_tokens=0),
        lambda request: request.elicit(
            "Who?", type("F", (forms.Form,), {"pin": forms.CharField()})
        ),
    ],
)
def test_question_for_secrets_or_with_invalid_options_raises(ask):
    with pytest.raises(ValueError, match=r"."):
        ask(capable_request())


# Steps that run once.


def test_step_that_has_not_run_unwinds_the_call():
    def step():
        raise AssertionError("not here")

    with pytest.raises(OnceNeeded) as unwound:
        make_request().once("charge", step)
    assert (unwound.value.key, unwound.value.function) == ("charge", step)


@pytest.mark.parametrize("value", [None, 0, False, "", {"a": [1]}])
def test_value_of_a_completed_step_is_returned(value):
    request = make_request(answers=KnownAnswers(remembered={"charge": value}))
    assert request.once("charge", print) == value == request.once("charge", print)
    with pytest.raises(OnceNeeded):
        request.once("another", print)


# Asynchronous methods.


def test_asynchronous_methods_return_known_answers():
    notifier = RecordingNotifier()
    questions = {
        "elicit": asked_question(lambda: capable_request().elicit("Sure?")),
        "roots": asked_question(lambda: capable_request().roots()),
        "sample": asked_question(lambda: capable_request().sample("hi")),
    }
    answers = KnownAnswers(
        known={
            questions["elicit"][1]: accepted(),
            questions["roots"][1]: {"result": {"roots": []}},
            questions["sample"][1]: {"result": {"content": {"type": "text", "text": "ho"}}},
        },
        remembered={"a": 1},
    )

    async def run():
        request = capable_request(answers, notifier=notifier)
        found = [
            await request.aelicit("Sure?"), await request.aroots(),
            (await request.asample("hi")).text, await request.aonce("a", print),
        ]  # fmt: skip
        await request.aprogress(1, 2, "half")
        await request.alog("info", "x", logger="l")
        return found

    assert asyncio.run(run()) == [True, [], "ho", 1]
    assert notifier.messages == [(1, 2, "half"), ("info", "x", "l")]


@pytest.mark.parametrize(
    ("ask", "unwinding"),
    [
        (lambda request: request.aelicit("Sure?"), InputRequired),
        (lambda request: request.aelicit("Sure?", key="a", timeout=5), InputRequired),
        (lambda request: request.asample("hi", max_tokens=5), InputRequired),
        (lambda request: request.aroots(key="a"), InputRequired),
        (lambda request: request.aask(a=mcp.Roots()), InputRequired),
        (lambda request: request.aonce("a", print), OnceNeeded),
    ],
)
def test_asynchronous_methods_unwind_the_call(ask, unwinding):
    async def run():
        with pytest.raises(unwinding):
            await ask(capable_request())

    asyncio.run(run())


class Form(forms.Form):
    name = forms.CharField()

    def clean_name(self):
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()  # queries are only allowed in a thread without an event loop
        return self.cleaned_data["name"].upper()


def test_django_form_is_cleaned_in_a_thread_that_allows_queries():
    answer = {"result": {"action": "accept", "content": {"name": "ann"}}}
    one = asked_question(lambda: capable_request().elicit("Who?", Form))
    several = asked_question(lambda: capable_request().ask(who=mcp.Elicit("Who else?", Form)))

    async def run():
        request = capable_request(answers_to(one, several, answer=answer))
        first = await request.aelicit("Who?", Form)
        second = await request.aask(who=mcp.Elicit("Who else?", Form))
        return first, second

    assert asyncio.run(run()) == ({"name": "ANN"}, {"who": {"name": "ANN"}})


# Answers.


def test_run_is_replaying_until_all_known_answers_are_used():
    assert not KnownAnswers().replaying
    assert KnownAnswers(known={"a": {}}).replaying and KnownAnswers(remembered={"a": 1}).replaying
    assert not KnownAnswers(known={"a": {}}, remembered={"b": 1}, used={"a", "b", "c"}).replaying
    assert not KnownAnswers(named={"a": {}}).replaying


# Client capabilities.


CAPABILITIES = {"elicit", "elicit_url", "sample", "sample_tools", "sample_context", "roots"}


@pytest.mark.parametrize(
    ("offered", "can"),
    [
        ({}, set()),
        ({"elicitation": {"form": {}}}, {"elicit"}),
        ({"elicitation": {"url": {}}}, {"elicit_url"}),
        ({"elicitation": {"form": {}, "url": {}}}, {"elicit", "elicit_url"}),
        ({"sampling": {}}, {"sample"}),
        ({"sampling": {"tools": {}}}, {"sample", "sample_tools"}),
        ({"sampling": {"tools": {}, "context": {}}}, {"sample", "sample_tools", "sample_context"}),
        ({"roots": {"listChanged": True}}, {"roots"}),
        ({"elicitation": True, "sampling": None, "roots": []}, set()),
        ({"sampling": {"tools": True}}, {"sample"}),
    ],
)
def test_client_capabilities_are_read_from_valid_entries_only(offered, can):
    assert {name for name in CAPABILITIES if getattr(ClientCapabilities(offered), name)} == can


def test_client_extensions():
    can = ClientCapabilities({"extensions": {"io.example/ui": {"a": 1}, "io.example/odd": True}})
    assert can.extension("io.example/ui") == {"a": 1}
    assert can.extension("io.example/odd") is None and can.extension("other") is None
    assert ClientCapabilities({}).extension("io.example/ui") is None
    assert ClientCapabilities({"extensions": None}).extension("io.example/ui") is None


def test_missing_client_capabilities():
    can = ClientCapabilities({"sampling": {}, "elicitation": {"url": {}}})
    assert can._lacks({"sampling": {}}) == {}
    assert can._lacks({"sampling": {"tools": {}}, "roots": {}, "elicitation": {"url": {}}}) == {
        "sampling": {"tools": {}}, "roots": {},
    }  # fmt: skip
