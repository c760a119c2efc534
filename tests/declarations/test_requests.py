"""A request waits for nothing: what it needs to know it has, or it unwinds the call."""

import asyncio

import pytest
from django import forms

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal
from django_mcp.declarations.request import KnownAnswers, NoNotifier
from django_mcp.exceptions import InputRequired, OnceNeeded, RunEnded, Stopped

from .world import asked

EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
PAY = "https://shop.example/pay"


class Said:
    """What a request said, in order."""

    def __init__(self):
        self.words = []

    def progress(self, done, total, message):
        self.words.append((done, total, message))

    def log(self, level, data, logger):
        self.words.append((level, data, logger))

    async def apause(self):
        pass


def able(answers=None, **options):
    """A request of a client that can be asked anything."""
    return asked(offered=EVERYTHING, answers=answers, **options)


def question_of(ask):
    """The only question ``ask`` unwinds with: its key on the wire, its digest, itself."""
    with pytest.raises(InputRequired) as unwound:
        ask()
    (question,) = unwound.value.questions.values()
    return question


def yes(answer=True):
    return {"result": {"action": "accept", "content": {"answer": answer}}}


def known(*questions, answer=None):
    """Answers to questions as they were asked."""
    answer = yes() if answer is None else answer
    return KnownAnswers(known={question[1]: answer for question in questions})


# Who asks.


def test_who_asks(alice):
    request = asked(
        alice, revision="2025-06-18", client_info={"name": "c"}, meta={"traceparent": "t"}
    )
    assert request.user is alice and request.auth is None and request.server is mcp.server
    assert request.revision == "2025-06-18" and request.client_info == {"name": "c"}
    assert request.meta == {"traceparent": "t"} and request.host is None


def test_with_a_token(alice):
    auth = Auth(frozenset({"read"}), "app")
    request = mcp.Request(Principal(alice, auth), mcp.server)
    assert request.auth is auth and request.user is alice


def test_it_can_be_made_of_a_principal_and_a_server():
    request = mcp.Request(asked().principal, mcp.server)
    assert request.user.is_anonymous and request.client_info == request.meta == {}
    assert not request.cancelled and not request.can.elicit
    request.progress(1)
    request.log("info", "nobody listens")
    assert NoNotifier().progress(1, None, None) is NoNotifier().log("info", 1, None) is None


def test_there_is_no_session_but_an_http_request(alice):
    request = asked(alice)
    assert not hasattr(request, "session")
    assert request.http.user is alice and request.http is request.http


# Saying.


def test_what_is_said():
    said = Said()
    request = asked(notifier=said)
    request.progress(1, 2, "half")
    request.progress(2.5)
    request.log("info", {"a": 1}, logger="shop")
    assert said.words == [(1, 2, "half"), (2.5, None, None), ("info", {"a": 1}, "shop")]


def test_a_call_taken_back_says_and_asks_nothing_more():
    said = Said()
    request = asked(notifier=said, stopped=lambda: True, offered=EVERYTHING)
    assert request.cancelled
    for act in (
        lambda: request.progress(1), lambda: request.log("info", 1), lambda: request.elicit("?"),
        lambda: request.sample("hi"), lambda: request.roots(), lambda: request.ask(),
        lambda: request.once("a", print),
    ):  # fmt: skip
        with pytest.raises(Stopped):
            act()
    assert said.words == []


def test_what_was_said_before_the_last_answer_is_not_said_again():
    first = question_of(lambda: able().elicit("One?"))
    second = question_of(lambda: able().elicit("Two?"))
    said = Said()
    request = able(known(first, second), notifier=said)
    request.progress(1)
    request.elicit("One?")
    request.log("info", "between")
    assert said.words == []
    request.elicit("Two?")
    request.progress(2)
    request.log("info", "after")
    assert said.words == [(2, None, None), ("info", "after", None)]


def test_steps_done_once_are_answers_too():
    said = Said()
    request = able(KnownAnswers(remembered={"a": 1}), notifier=said)
    request.progress(1)
    assert request.once("a", print) == 1
    request.progress(2)
    assert said.words == [(2, None, None)]


# Asking.


def test_without_an_answer_the_call_unwinds():
    request = able()
    key, digest, question = question_of(lambda: request.elicit("Sure?"))
    assert key == digest == question.digest(1) and question == mcp.Elicit("Sure?", bool)
    for ask in (lambda: able().sample("hi", max_tokens=5), lambda: able().roots()):
        question_of(ask)


def test_no_code_eats_a_question():
    with pytest.raises(RunEnded):
        try:
            able().elicit("Sure?")
        except Exception:
            pytest.fail("eaten")


def test_with_an_answer_it_goes_on():
    question = question_of(lambda: able().elicit("Sure?"))
    assert able(known(question)).elicit("Sure?") is True
    sample = question_of(lambda: able().sample("hi"))
    answer = {"result": {"content": {"type": "text", "text": "ho"}, "model": "m"}}
    assert able(known(sample, answer=answer)).sample("hi").text == "ho"
    roots = question_of(lambda: able().roots())
    answer = {"result": {"roots": [{"uri": "file:///a"}]}}
    assert able(known(roots, answer=answer)).roots() == [mcp.Root("file:///a")]


def test_an_answer_belongs_to_the_exact_question():
    """Yes to a refund of 100 is no yes to one of 5000."""
    question = question_of(lambda: able().elicit("Refund 100?"))
    request = able(known(question))
    asked_anew = question_of(lambda: request.elicit("Refund 5000?"))
    assert asked_anew[2].message == "Refund 5000?" and asked_anew[1] != question[1]
    question_of(lambda: able(known(question)).elicit("Refund 100?", str))


def test_the_same_question_twice_has_two_answers():
    first = question_of(lambda: able().elicit("Again?"))
    request = able(known(first))
    assert request.elicit("Again?") is True
    second = question_of(lambda: request.elicit("Again?"))
    answers = KnownAnswers(known={first[1]: yes(True), second[1]: yes(False)})
    request = able(answers)
    assert [request.elicit("Again?"), request.elicit("Again?")] == [True, False]


def test_roots_are_asked_for_once():
    roots = question_of(lambda: able().roots())
    request = able(known(roots, answer={"result": {"roots": []}}))
    assert request.roots() == request.roots() == []


def test_a_page_to_visit():
    _, _, question = question_of(lambda: able().elicit("Pay.", url=PAY))
    assert question == mcp.Elicit("Pay.", None, url=PAY)


def test_who_declines():
    question = question_of(lambda: able().elicit("Sure?"))
    answers = known(question, answer={"result": {"action": "decline"}})
    with pytest.raises(mcp.Declined):
        able(answers).elicit("Sure?")
    assert able(answers).elicit("Sure?", default=None) is None


@pytest.mark.parametrize(
    ("answer", "error"),
    [({"error": {"code": -1, "message": "No."}}, mcp.ClientError), ({"timeout": 1}, mcp.TimedOut)],
)
def test_errors_are_raised_where_the_question_was(answer, error):
    question = question_of(lambda: able().elicit("Sure?"))
    with pytest.raises(error):
        able(known(question, answer=answer)).elicit("Sure?", default=None)


@pytest.mark.parametrize("answer", [yes("x"), {"result": {"action": "accept"}}, {"result": 5}, {}])
def test_a_wrong_answer_is_asked_anew_with_the_reason(answer):
    question = question_of(lambda: able().elicit("Sure?"))
    answers = known(question, answer=answer)
    key, digest, again = question_of(lambda: able(answers).elicit("Sure?"))
    assert digest == question[1] and "Sure?" in again.message and again.message != "Sure?"
    assert digest not in answers.known


# Named answers, that came without being asked for.


def named(**answers):
    return KnownAnswers(
        named={name: {"result": answer["result"]} for name, answer in answers.items()}
    )


def test_a_named_answer_is_taken_if_it_fits_the_question():
    answers = named(sure=yes())
    assert able(answers).elicit("Sure?", key="sure") is True
    assert list(answers.known.values()) == [yes()]  # and is known from now on


def test_a_named_answer_that_does_not_fit_is_asked_anew():
    key, _, again = question_of(lambda: able(named(sure=yes("x"))).elicit("Sure?", key="sure"))
    assert key == "sure" and "Sure?" in again.message


def test_a_named_answer_answers_one_question():
    """Not every later one that goes by the same key."""
    request = able(named(sure=yes()))
    assert request.elicit("Refund 100?", key="sure") is True
    key, _, question = question_of(lambda: request.elicit("Delete everything?", key="sure"))
    assert key == "sure" and question.message == "Delete everything?"


def test_a_question_without_a_key_takes_no_named_answer():
    digest = question_of(lambda: able().elicit("Sure?"))[1]
    for name in ("", "sure", digest):
        question_of(lambda name=name: able(named(**{name: yes()})).elicit("Sure?"))


def test_the_answer_to_the_exact_question_counts_more():
    question = question_of(lambda: able().elicit("Sure?", key="sure"))
    answers = KnownAnswers(known={question[1]: yes(False)}, named={"sure": yes(True)})
    assert able(answers).elicit("Sure?", key="sure") is False


# Several at once.


def test_several_questions_at_once():
    request = able()
    with pytest.raises(InputRequired) as unwound:
        request.ask(sure=mcp.Elicit("Sure?"), word=mcp.Sample("A word."), where=mcp.Roots())
    found = unwound.value.questions
    assert [found[name][0] for name in found] == ["sure", "word", "where"] == list(found)


def test_only_what_is_not_known_is_asked():
    question = question_of(lambda: able().ask(a=mcp.Elicit("A?")))
    request = able(known(question))
    with pytest.raises(InputRequired) as unwound:
        request.ask(a=mcp.Elicit("A?"), b=mcp.Elicit("B?"))
    assert list(unwound.value.questions) == ["b"]
    other = unwound.value.questions["b"]
    assert able(known(question, other)).ask(a=mcp.Elicit("A?"), b=mcp.Elicit("B?")) == {
        "a": True, "b": True,
    }  # fmt: skip


def test_nothing_asked_is_nothing_answered():
    assert able().ask() == {}


def test_a_question_goes_by_its_key_and_else_by_its_name():
    with pytest.raises(InputRequired) as unwound:
        able().ask(a=mcp.Elicit("A?", key="x"), b=mcp.Elicit("B?"))
    found = unwound.value.questions
    assert {name: asking[0] for name, asking in found.items()} == {"a": "x", "b": "b"}


def test_two_questions_have_two_keys():
    with pytest.raises(ValueError, match="must have its own key"):
        able().ask(a=mcp.Elicit("A?", key="b"), b=mcp.Elicit("B?"))
    with pytest.raises(ValueError, match="must have its own key"):
        able().ask(a=mcp.Elicit("A?", key="x"), b=mcp.Elicit("B?", key="x"))


def test_who_declines_one_of_them_declines_when_all_are_answered():
    with pytest.raises(InputRequired) as unwound:
        able().ask(a=mcp.Elicit("A?"), b=mcp.Elicit("B?"))
    a, b = unwound.value.questions.values()
    declined = {"result": {"action": "decline"}}
    with pytest.raises(InputRequired):
        able(KnownAnswers(known={a[1]: declined})).ask(a=mcp.Elicit("A?"), b=mcp.Elicit("B?"))
    with pytest.raises(mcp.Declined):
        able(KnownAnswers(known={a[1]: declined, b[1]: yes()})).ask(
            a=mcp.Elicit("A?"), b=mcp.Elicit("B?")
        )


def test_a_word_for_self_is_a_name_too():
    with pytest.raises(InputRequired) as unwound:
        able().ask(self=mcp.Elicit("A?"))
    assert list(unwound.value.questions) == ["self"]


# Who cannot be asked, and where nothing can.


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
def test_a_client_that_cannot_be_asked(ask, required):
    with pytest.raises(mcp.Unsupported) as refused:
        ask(asked())
    assert refused.value.required == required


def test_what_is_known_need_not_be_asked():
    question = question_of(lambda: able().elicit("Sure?"))
    assert asked(answers=known(question)).elicit("Sure?") is True


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
def test_where_nothing_can_be_asked(ask):
    request = able()
    request.asks = False
    with pytest.raises(RuntimeError, match="in lists, completion or on commit"):
        ask(request)


def test_what_is_known_may_be_looked_at_there_too():
    question = question_of(lambda: able().elicit("Sure?"))
    answers = KnownAnswers(known={question[1]: yes()}, remembered={"a": 1})
    request = able(answers)
    request.asks = False
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
def test_what_is_asked_of_nobody(ask):
    with pytest.raises(ValueError, match=r"."):
        ask(able())


# Once.


def test_a_step_that_is_not_done_yet_unwinds_the_call():
    def step():
        raise AssertionError("not here")

    with pytest.raises(OnceNeeded) as unwound:
        asked().once("charge", step)
    assert (unwound.value.key, unwound.value.function) == ("charge", step)


@pytest.mark.parametrize("value", [None, 0, False, "", {"a": [1]}])
def test_a_step_that_is_done_is_remembered(value):
    request = asked(answers=KnownAnswers(remembered={"charge": value}))
    assert request.once("charge", print) == value == request.once("charge", print)
    with pytest.raises(OnceNeeded):
        request.once("another", print)


# The same from asynchronous code.


def test_the_same_from_asynchronous_code():
    said = Said()
    questions = {
        "elicit": question_of(lambda: able().elicit("Sure?")),
        "roots": question_of(lambda: able().roots()),
        "sample": question_of(lambda: able().sample("hi")),
    }
    answers = KnownAnswers(
        known={
            questions["elicit"][1]: yes(),
            questions["roots"][1]: {"result": {"roots": []}},
            questions["sample"][1]: {"result": {"content": {"type": "text", "text": "ho"}}},
        },
        remembered={"a": 1},
    )

    async def run():
        request = able(answers, notifier=said)
        found = [
            await request.aelicit("Sure?"), await request.aroots(),
            (await request.asample("hi")).text, await request.aonce("a", print),
        ]  # fmt: skip
        await request.aprogress(1, 2, "half")
        await request.alog("info", "x", logger="l")
        return found

    assert asyncio.run(run()) == [True, [], "ho", 1]
    assert said.words == [(1, 2, "half"), ("info", "x", "l")]


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
def test_it_unwinds_there_too(ask, unwinding):
    async def run():
        with pytest.raises(unwinding):
            await ask(able())

    asyncio.run(run())


class Form(forms.Form):
    name = forms.CharField()

    def clean_name(self):
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()  # where the database may be asked, no loop runs
        return self.cleaned_data["name"].upper()


def test_a_django_form_is_cleaned_where_rows_may_be_looked_up():
    answer = {"result": {"action": "accept", "content": {"name": "ann"}}}
    one = question_of(lambda: able().elicit("Who?", Form))
    several = question_of(lambda: able().ask(who=mcp.Elicit("Who else?", Form)))

    async def run():
        request = able(known(one, several, answer=answer))
        first = await request.aelicit("Who?", Form)
        second = await request.aask(who=mcp.Elicit("Who else?", Form))
        return first, second

    assert asyncio.run(run()) == ({"name": "ANN"}, {"who": {"name": "ANN"}})


# Answers.


def test_whether_a_run_is_where_an_earlier_one_has_been():
    assert not KnownAnswers().replaying
    assert KnownAnswers(known={"a": {}}).replaying and KnownAnswers(remembered={"a": 1}).replaying
    assert not KnownAnswers(known={"a": {}}, remembered={"b": 1}, used={"a", "b", "c"}).replaying
    assert not KnownAnswers(named={"a": {}}).replaying
