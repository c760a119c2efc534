"""Questions over a pipe: unguessable ids, deadlines, and one answer each."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

import django_mcp as mcp
from django_mcp.calls.interaction import MAX_ELICITATIONS, PendingQuestions
from django_mcp.declarations.request import KnownAnswers
from django_mcp.exceptions import Unsupported
from django_mcp.protocol.connection import Answered
from django_mcp.protocol.revisions import REVISIONS

REVISION = REVISIONS["2025-11-25"]
ACCEPTED = {"action": "accept", "content": {"answer": True}}


class Pipe:
    """Questions, and what they send."""

    def __init__(self, *, ready: bool = True) -> None:
        self.sent: list[Any] = []
        self.questions = PendingQuestions(self.sent.append)
        if ready:
            self.questions.ready.set()

    def ask(self, *questions: mcp.Elicit | mcp.Sample | mcp.Roots, revision: Any = REVISION):
        asking = [(f"key {n}", f"digest {n}", one) for n, one in enumerate(questions)]
        return asyncio.ensure_future(self.questions.ask(revision, asking))

    def answer(self, number: int, result: Any = None, error: Any = None) -> None:
        id = [message["id"] for message in self.sent if "id" in message][number]
        self.questions.answered(Answered(id, result, error))


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_questions_are_asked_together_and_answered_in_any_order():
    pipe = Pipe()
    task = pipe.ask(mcp.Elicit("Sure?"), mcp.Roots())
    await turns()
    assert [message["method"] for message in pipe.sent] == ["elicitation/create", "roots/list"]
    assert len({message["id"] for message in pipe.sent}) == 2
    pipe.answer(1, {"roots": []})
    await turns()
    assert not task.done()
    pipe.answer(0, ACCEPTED)
    assert await task == {"digest 0": {"result": ACCEPTED}, "digest 1": {"result": {"roots": []}}}
    assert len(pipe.sent) == 2  # nothing is withdrawn


async def test_question_waits_until_the_client_is_initialized():
    pipe = Pipe(ready=False)
    task = pipe.ask(mcp.Roots())
    await turns()
    assert pipe.sent == []
    pipe.questions.ready.set()
    await turns()
    assert len(pipe.sent) == 1
    pipe.answer(0, {"roots": []})
    assert await task


async def test_question_to_an_uninitialized_client_times_out(settings):
    settings.DJANGO_MCP = {"QUESTION_TIMEOUT": 0.01}
    pipe = Pipe(ready=False)
    assert await pipe.ask(mcp.Roots()) == {"digest 0": {"timeout": 0.01}}
    assert pipe.sent == []  # what was never sent is not withdrawn


@pytest.mark.parametrize("own", [None, 0.01])
async def test_unanswered_question_is_cancelled_after_the_timeout(settings, own):
    settings.DJANGO_MCP = {"QUESTION_TIMEOUT": 0.01 if own is None else 100}
    pipe = Pipe()
    assert await pipe.ask(mcp.Roots(timeout=own)) == {"digest 0": {"timeout": 0.01}}
    asked, withdrawn = pipe.sent
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"]["requestId"] == asked["id"]
    pipe.answer(0, {"roots": []})  # too late


async def test_question_is_not_cancelled_if_the_revision_cannot(caplog):
    pipe = Pipe()
    silent = replace(REVISION, sends=frozenset())
    assert await pipe.ask(mcp.Roots(timeout=0.01), revision=silent)
    assert len(pipe.sent) == 1


@pytest.mark.parametrize(
    "answer",
    [{}, {"roots": None}, {"roots": [1]}, {"action": "accept"}, {"roots": [{"name": "x"}]}],
)
async def test_invalid_answer_is_omitted(answer):
    pipe = Pipe()
    task = pipe.ask(mcp.Roots())
    await turns()
    pipe.answer(0, answer)
    assert await task == {}


async def test_error_response_answers_without_its_data():
    pipe = Pipe()
    task = pipe.ask(mcp.Roots())
    await turns()
    pipe.answer(0, error={"code": -1, "message": "No.", "data": {"secret": 1}})
    assert await task == {"digest 0": {"error": {"code": -1, "message": "No."}}}


async def test_only_the_first_answer_counts(caplog):
    caplog.set_level(logging.DEBUG, "django_mcp")
    pipe = Pipe()
    task = pipe.ask(mcp.Roots())
    await turns()
    pipe.answer(0, {"roots": []})
    pipe.answer(0, {"roots": [{"uri": "file:///late"}]})
    for id in ("unknown", 7, ""):
        pipe.questions.answered(Answered(id, {"roots": []}))
    assert await task == {"digest 0": {"result": {"roots": []}}}
    pipe.answer(0, {"roots": []})
    assert caplog.text.count("Response without a request ignored") == 5


async def test_cancelled_call_cancels_its_open_questions():
    pipe = Pipe()
    task = pipe.ask(mcp.Roots(), mcp.Sample("A word."))
    await turns()
    pipe.answer(0, {"roots": []})
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await turns()
    withdrawn = [m["params"]["requestId"] for m in pipe.sent if "id" not in m]
    assert withdrawn == [pipe.sent[1]["id"]]  # the other was answered


async def test_question_that_the_revision_lacks_is_unsupported():
    pipe = Pipe()
    with pytest.raises(Unsupported, match="elicitation"):
        await pipe.ask(mcp.Roots(), mcp.Elicit("Sure?"), revision=REVISIONS["2025-03-26"])
    assert pipe.sent == []


async def test_url_elicitation_has_an_id_whose_completion_is_expected():
    pipe = Pipe()
    task = pipe.ask(mcp.Elicit("Sign in.", url="https://shop.example/{elicitation_id}"))
    await turns()
    params = pipe.sent[0]["params"]
    assert params["url"] == f"https://shop.example/{params['elicitationId']}"
    assert list(pipe.questions.elicitations) == [params["elicitationId"]]
    pipe.answer(0, {"action": "accept"})
    assert await task


def test_number_of_expected_elicitations_is_limited():
    async def expecting() -> list[str]:
        pipe = Pipe()
        for number in range(MAX_ELICITATIONS + 5):
            pipe.questions.expect(str(number))
        return list(pipe.questions.elicitations)

    kept = asyncio.run(expecting())
    assert kept[0] == "5" and len(kept) == MAX_ELICITATIONS


async def test_connected_client_answers_a_ping(handshake):
    pipe = Pipe()
    task = asyncio.ensure_future(pipe.questions.ping(REVISIONS[handshake], 5))
    await turns()
    assert pipe.sent[0]["method"] == "ping"
    pipe.answer(0, {})
    assert await task is True


async def test_ping_without_an_answer_times_out(caplog):
    pipe = Pipe()
    assert await pipe.questions.ping(REVISION, 0.01) is False
    assert "did not answer a ping" in caplog.text
    assert len(pipe.sent) == 1  # a ping is not withdrawn: nobody works on it
    assert pipe.questions._open == {}


async def test_revision_without_pings_counts_as_connected():
    pipe = Pipe()
    assert await pipe.questions.ping(REVISIONS["2026-07-28"], 0.01) is True
    assert pipe.sent == []


# The same, seen from a tool.


@pytest.fixture
def curious(server):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def ask(request: mcp.Request, default: bool = False) -> str:
        given = {"default": False} if default else {}
        try:
            return f"{request.elicit('Sure?', **given)}"
        except mcp.Declined as error:
            return f"{error.action}"
        except mcp.TimedOut:
            return "timed out"
        except mcp.ClientError as error:
            return f"{error.code} {error}"

    return server


def elicited(result):
    return {"elicitation/create": lambda params: result}


@pytest.mark.parametrize(
    "answer, words",
    [
        (ACCEPTED, "True"),
        ({"action": "accept", "content": {"answer": False}}, "False"),
        ({"action": "decline"}, "decline"),
        ({"action": "cancel"}, "cancel"),
    ],
)
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_answer_actions_give_the_expected_values(connect, curious, revision, answer, words):
    client = connect(server=curious, revision=revision, answers=elicited(answer))
    assert client.text("ask") == words
    expected = words if answer["action"] == "accept" else "False"
    assert client.text("ask", default=True) == expected


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_error_responses_and_timeouts_reach_the_tool(connect, curious, revision, settings):
    settings.DJANGO_MCP = {"QUESTION_TIMEOUT": 0.01}
    error = {"code": -32603, "message": "The user left."}
    client = connect(server=curious, revision=revision, answers=elicited(error))
    assert client.text("ask") == "-32603 The user left."
    client.answers.clear()
    assert client.text("ask") == "timed out"


def test_answers_know_whether_the_run_replays_an_earlier_one():
    answers = KnownAnswers(known={"a": {}}, remembered={"b": 1})
    assert answers.replaying
    answers.used.add("a")
    assert answers.replaying
    answers.used.add("b")
    assert not answers.replaying
