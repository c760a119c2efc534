"""Elicitation by forms and by URLs: what is sent to the user, and which answers are accepted."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from django import forms
from pydantic import BaseModel, Field

import django_mcp as mcp
from django_mcp.changes.api import notify_elicitation_complete
from django_mcp.protocol.revisions import REVISIONS
from tests.shop.models import Company

from .helpers import error_member, replies_to, response_to

pytestmark = pytest.mark.django_db
ASKING = [name for name, one in REVISIONS.items() if "elicitation/create" in one.asks]
URLS = [name for name, one in REVISIONS.items() if one.url_elicitation]
ELICIT = "elicitation/create"
PAGE = "https://shop.example/sign-in"
DECLINE, CANCEL = {"action": "decline"}, {"action": "cancel"}


class Person(BaseModel):
    name: str = Field(description="In full", min_length=2)
    age: int = Field(ge=0, le=150)
    colours: list[Literal["red", "blue"]] = []
    letter: bool = True


class PersonForm(forms.Form):
    name = forms.CharField(min_length=2)
    age = forms.IntegerField(min_value=0, max_value=150)
    born = forms.DateField(required=False)


HANDWRITTEN = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 0},
    },
    "required": ["name", "age"],
}


def accept(content=None):
    return {"action": "accept", "content": {"answer": True} if content is None else content}


@pytest.fixture(params=ASKING)
def revision(request):
    """Each revision that has elicitation."""
    return request.param


@pytest.fixture
def ask(server):
    """Declares a tool ``ask`` that asks what is given, and says what it got."""

    def declare(*given, **options):
        @server.tool(permission=mcp.PUBLIC, name="ask")
        def asking(request: mcp.Request) -> str:
            Company.objects.create(name="written before asking")
            return repr(request.elicit(*given, **options))

        return server

    return declare


def answering(*answers):
    """Answers to elicitations, one after the other."""
    waiting = list(answers)
    return {ELICIT: lambda params: waiting.pop(0)}


def asked(client):
    """The parameters of the one question that was asked, in either way of asking."""
    (question,) = client.asked
    assert question["method"] == ELICIT
    return question["params"]


# What may be asked.


@dataclass
class Card:
    holder: str
    card_number: str


class Login(BaseModel):
    username: str
    apiKey: str


class Titled(BaseModel):
    thing: str = Field(title="Your API key")


class LoginForm(forms.Form):
    user = forms.CharField()
    code = forms.CharField(widget=forms.PasswordInput)


def field(name, **more):
    return {"type": "object", "properties": {name: {"type": "string"} | more}}


SECRETS = [
    ("Sign in.", Login),
    ("Pay.", Card),
    ("Go on.", Titled),
    ("Sign in.", LoginForm),
    ("Please.", field("password")),
    ("Please.", field("access_token")),
    ("Please.", field("clientSecret")),
    ("Please.", field("x", title="Password")),
    ("Please.", field("CVV")),
    ("What is your password?", str),
    ("API key:", str),
]
HARMLESS = [
    ("Who are you?", field("username")),
    ("Where?", field("email", format="email")),
    ("Which ship?", field("passenger")),
    ("Reset your password?", bool),
    ("Which?", Literal["token", "password"]),
    ("Who wrote it?", field("secretary")),
    ("Who?", Person),
]


@pytest.mark.parametrize(("message", "schema"), SECRETS, ids=str)
def test_form_that_asks_for_secrets_is_not_sent(connect, revision, ask, message, schema, caplog):
    client = connect(server=ask(message, schema), revision=revision)
    assert client.failure("ask")
    assert client.asked == []
    assert "must not ask for secrets" in caplog.text


@pytest.mark.parametrize(("message", "schema"), HARMLESS, ids=str)
def test_form_without_secrets_is_sent(connect, revision, ask, message, schema):
    client = connect(server=ask(message, schema), revision=revision, answers=answering(DECLINE))
    assert "declined" in client.failure("ask")
    assert asked(client)["message"] == message


@pytest.mark.parametrize("newer", URLS)
def test_secret_may_be_asked_for_by_url(connect, newer, ask):
    server = ask("Enter your password.", url=PAGE)
    client = connect(server=server, revision=newer, answers=answering({"action": "accept"}))
    assert client.text("ask") == "True"
    params = asked(client)
    assert params["url"] == PAGE and params["mode"] == "url"
    assert "requestedSchema" not in params


FORM = {"form": {}}
MODES = [
    (None, False, False),
    ({}, True, False),
    (FORM, True, False),
    ({"url": {}}, False, True),
    ({"form": {}, "url": {}}, True, True),
]


@pytest.mark.parametrize(("declared", "form", "url"), MODES, ids=str)
def test_only_declared_elicitation_modes_are_used(connect, revision, server, declared, form, url):
    @server.tool(permission=mcp.PUBLIC)
    def by_form(request: mcp.Request) -> str:
        return str(request.elicit("Sure?", default="no"))

    @server.tool(permission=mcp.PUBLIC)
    def by_url(request: mcp.Request) -> str:
        return str(request.elicit("Go there.", url=PAGE, default="no"))

    newer = revision in URLS
    possible = {"by_form": form or (declared is not None and not newer), "by_url": url and newer}
    for tool, may in possible.items():
        client = connect(
            server=server, revision=revision, answers=answering(DECLINE),
            capabilities={} if declared is None else {"elicitation": declared},
        )  # fmt: skip
        if may:
            assert client.text(tool) == "no" and len(client.asked) == 1
        elif revision == ASKING[-1]:
            assert error_member(client, "tools/call", name=tool)["code"] == -32021
        else:
            assert "does not support elicitation" in client.failure(tool)
        assert may or client.asked == []


# How it is asked.


@pytest.mark.parametrize("schema", [Person, PersonForm, HANDWRITTEN, str, list[Literal["a"]]])
def test_form_has_a_message_and_flat_fields(connect, revision, ask, schema):
    client = connect(
        server=ask("Who are you?", schema), revision=revision, answers=answering(CANCEL)
    )
    client.failure("ask")
    params = asked(client)
    assert params["message"] == "Who are you?"
    if revision in URLS:
        assert params["mode"] == "form"
    else:
        assert "mode" not in params
    schema = params["requestedSchema"]
    assert schema["type"] == "object" and schema["properties"]
    plain = {"string", "number", "integer", "boolean"} | ({"array"} if revision in URLS else set())
    for one in schema["properties"].values():
        assert one["type"] in plain
        assert not {"properties", "$ref", "anyOf", "allOf", "$defs"} & one.keys()


class Nested(BaseModel):
    inside: Person


@pytest.mark.parametrize(
    "schema",
    [
        Nested,
        dict[str, int],
        list[str],
        {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}},
        {"type": "string"},
    ],
    ids=str,
)
def test_form_with_nested_fields_is_not_sent(connect, revision, ask, schema, caplog):
    client = connect(server=ask("What?", schema), revision=revision)
    assert "went wrong" in client.failure("ask")
    assert client.asked == [] and "TypeError" in caplog.text


@pytest.mark.parametrize("newer", URLS)
def test_url_elicitation_has_mode_message_url_and_id(connect, newer, ask):
    url = PAGE + "?next=%2F&id={elicitation_id}"
    client = connect(server=ask("Sign in.", url=url), revision=newer, answers=answering(CANCEL))
    client.failure("ask")
    params = asked(client)
    assert params["mode"] == "url" and params["message"] == "Sign in."
    prefix, _, id = params["url"].partition("&id=")
    assert prefix == PAGE + "?next=%2F" and len(id) >= 32
    assert params.get("elicitationId", id) == id
    assert ("elicitationId" in params) is (newer == "2025-11-25")


NO_URLS = ["", "sign-in", "/sign-in", "//shop.example", "javascript:alert(1)", "file:///etc/passwd",
           "https://", "https:///x", "https://a b/", "https://shop.example/\nx", "https://[::1",
           "data:text/html,x", "https://alice:hunter2@shop.example/"]  # fmt: skip


@pytest.mark.parametrize("url", NO_URLS)
@pytest.mark.parametrize("newer", URLS)
def test_invalid_url_is_not_sent(connect, newer, server, ask, url):
    ask("Sign in.", url=url)

    @server.tool(permission=mcp.PUBLIC)
    def required(request: mcp.Request) -> str:
        raise mcp.UrlRequired("Sign in.", url)

    client = connect(server=server, revision=newer)
    for tool in ("ask", "required"):
        assert "went wrong" in client.failure(tool)
    assert client.asked == [] and "elicitations" not in str(client.received)


@pytest.mark.parametrize("newer", URLS)
def test_url_must_be_https_unless_debug(connect, newer, ask, settings):
    client = connect(server=ask("Sign in.", url="http://shop.example/"), revision=newer,
                     answers=answering(CANCEL, CANCEL))  # fmt: skip
    assert "went wrong" in client.failure("ask")
    assert client.asked == []
    settings.DEBUG = True
    assert "declined" in client.failure("ask")


@pytest.mark.parametrize("url", ["http://localhost:8000/x", "http://127.0.0.1/x", "http://[::1]/"])
def test_http_url_of_localhost_is_sent(connect, ask, url):
    client = connect(server=ask("Sign in.", url=url), answers=answering(CANCEL))
    assert "declined" in client.failure("ask")


LINKS = [("See https://evil.example/x.", bool), ("See.", field("a", description="www.a.example"))]


@pytest.mark.parametrize(("message", "schema"), LINKS)
def test_form_that_contains_a_link_is_logged(connect, revision, ask, message, schema, caplog):
    client = connect(server=ask(message, schema), revision=revision, answers=answering(DECLINE))
    client.failure("ask")
    assert "contains a link" in caplog.text


@pytest.mark.parametrize("schema", [Person, PersonForm, bool, list[Literal["a", "b"]]])
def test_generated_form_contains_no_link(connect, revision, ask, schema, caplog):
    client = connect(server=ask("Who?", schema), revision=revision, answers=answering(DECLINE))
    client.failure("ask")
    assert "://" not in str(asked(client)) and "contains a link" not in caplog.text


# What comes back.

GOOD = {"name": "Carla", "age": 42}
BAD: list[Any] = [
    {},
    {"name": "Carla"},
    {"name": "C", "age": 42},
    {"name": "Carla", "age": -1},
    {"name": "Carla", "age": "42"},
    {"name": "Carla", "age": 4.5},
    {"name": ["Carla"], "age": 42},
    {"name": None, "age": 42},
    "Carla",
]


@pytest.mark.parametrize("schema", [Person, PersonForm, HANDWRITTEN])
def test_answer_must_match_the_requested_schema(connect, revision, ask, schema):
    answers = [accept(bad) for bad in BAD]
    client = connect(
        server=ask("Who?", schema), revision=revision, answers=answering(*answers, accept(GOOD))
    )
    assert "Carla" in client.text("ask")
    assert len(client.asked) == len(BAD) + 1
    assert Company.objects.count() == 1  # of all the runs the last alone has written


def test_null_in_an_answer_means_the_field_is_omitted(connect, revision, ask):
    content = GOOD | {"colours": None}
    server = ask("Who?", Person)
    client = connect(server=server, revision=revision, answers=answering(accept(content)))
    assert "colours=[]" in client.text("ask")


@pytest.fixture
def outcome(server):
    @server.tool(permission=mcp.PUBLIC)
    def handled(request: mcp.Request) -> str:
        try:
            return f"answered {request.elicit('Sure?')}"
        except mcp.Declined as declined:
            return f"left by {declined.action}"
        except mcp.ClientError as failed:
            return f"failed with {failed.code}"

    @server.tool(permission=mcp.PUBLIC)
    def unhandled(request: mcp.Request) -> str:
        Company.objects.create(name="written before asking")
        return f"answered {request.elicit('Sure?')}"

    @server.tool(permission=mcp.PUBLIC)
    def easy(request: mcp.Request) -> str:
        return f"answered {request.elicit('Sure?', default='nothing')}"

    return server


OUTCOMES = [(DECLINE, "left by decline"), (CANCEL, "left by cancel"), (accept(), "answered True")]


@pytest.mark.parametrize(("given", "expected"), OUTCOMES)
def test_tool_receives_accept_decline_or_cancel(connect, revision, outcome, given, expected):
    client = connect(server=outcome, revision=revision, answers={ELICIT: lambda params: given})
    assert client.text("handled") == expected
    if given is DECLINE or given is CANCEL:
        assert client.text("easy") == "answered nothing"
        assert "declined" in client.failure("unhandled")
        assert not Company.objects.exists()


def test_tool_receives_the_client_error(connect, revision, outcome, settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"QUESTION_ROUNDS": 3}
    broken = {"code": -32603, "message": "The window is gone."}
    client = connect(server=outcome, revision=revision, answers={ELICIT: lambda params: broken})
    if REVISIONS[revision].handshake:
        assert client.text("handled") == "failed with -32603"
        assert client.failure("unhandled") == "The window is gone."
    else:  # which can only say what is no answer
        assert "asked more than 3 times" in client.failure("unhandled")
    assert not Company.objects.exists()


def test_newest_revision_asks_in_the_result(connect, server):
    @server.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> str:
        return request.elicit("Tool?", str)

    @server.prompt(permission=mcp.PUBLIC)
    def prompt(request: mcp.Request) -> str:
        return request.elicit("Prompt?", str)

    @server.resource("asked://it", permission=mcp.PUBLIC)
    def resource(request: mcp.Request) -> str:
        return request.elicit("Resource?", str)

    client = connect(server=server)
    requests = {
        "Tool?": ("tools/call", {"name": "tool"}),
        "Prompt?": ("prompts/get", {"name": "prompt"}),
        "Resource?": ("resources/read", {"uri": "asked://it"}),
    }
    for message, (method, params) in requests.items():
        result = response_to(client, method, **params)["result"]
        ((key, question),) = result["inputRequests"].items()
        assert question["method"] == ELICIT and question["params"]["message"] == message
        more = {"inputResponses": {key: accept({"answer": "because"})}}
        done = response_to(client, method, **params, **more, requestState=result["requestState"])
        assert "because" in str(done["result"])


# Whose it is.


@pytest.fixture
def private(server):
    @server.tool(permission=mcp.AUTHENTICATED)
    def whose(request: mcp.Request) -> str:
        request.elicit("Sure?")
        return str(request.user)

    return server


def test_request_state_is_valid_only_for_its_user(connect, private, alice, bob):
    mine, yours = connect(alice, server=private), connect(bob, server=private)
    result = mine.call("whose")
    (key,) = result["inputRequests"]
    more = {"inputResponses": {key: accept()}, "requestState": result["requestState"]}
    assert error_member(yours, "tools/call", name="whose", arguments={}, **more)["code"] == -32602
    nobody = connect(server=private)
    assert error_member(nobody, "tools/call", name="whose", arguments={}, **more)["code"] == -32602
    # It is the user that counts, not the connection.
    again = connect(alice, server=private)
    assert again.request("tools/call", name="whose", arguments={}, **more)["content"]
    alice.is_active = False
    gone = connect(alice, server=private)
    assert error_member(gone, "tools/call", name="whose", arguments={}, **more)["code"] == -32602


def test_only_the_asked_session_can_answer(connect, private, alice, bob):
    mine, yours = (connect(user, server=private, revision="2025-11-25") for user in (alice, bob))
    ids = mine.start("tools/call", name="whose"), yours.start("tools/call", name="whose")
    mine.until(lambda: mine.asked)
    yours.until(lambda: yours.asked)
    theirs = {"jsonrpc": "2.0", "id": mine.asked[0]["id"], "result": accept()}
    assert replies_to(yours, theirs) == []  # a good guess, from another connection
    mine.settle()
    assert mine.received[-1] is mine.asked[0]
    for client, id, name in ((mine, ids[0], "alice"), (yours, ids[1], "bob")):
        reply = {"jsonrpc": "2.0", "id": client.asked[0]["id"], "result": accept()}
        client.send(reply)
        assert client.wait(id)["result"]["content"][0]["text"] == name


def test_user_claimed_by_the_client_is_ignored(connect, revision, private, bob):
    claims = {"user": "alice", "username": "alice", "sub": "alice"}
    answers = {ELICIT: lambda params: accept(claims | {"answer": True})}
    client = connect(bob, server=private, revision=revision, answers=answers)
    result = client.request("tools/call", name="whose", arguments={}, _meta=claims, **claims)
    assert result["content"][0]["text"] == "bob"


# Pages to visit.


def visiting(server):
    @server.tool(permission=mcp.PUBLIC)
    def visit(request: mcp.Request) -> str:
        return str(request.elicit("Sign in.", url=PAGE + "?id={elicitation_id}"))

    @server.tool(permission=mcp.PUBLIC)
    def required(request: mcp.Request) -> str:
        raise mcp.UrlRequired("Sign in first.", PAGE + "?id={elicitation_id}")

    @server.tool(permission=mcp.PUBLIC)
    def fail(request: mcp.Request, how: Literal["tool", "bug", "protocol"]) -> str:
        errors = {
            "tool": mcp.ToolError("No."),
            "bug": KeyError("x"),
            "protocol": mcp.ProtocolError("No.", code=1),
        }
        raise errors[how]

    return server


@pytest.mark.parametrize("newer", URLS)
def test_completed_url_elicitation_authenticates_nobody(connect, newer, private):
    """Only the token identifies the caller."""
    client = connect(
        server=visiting(private), revision=newer, answers=answering({"action": "accept"})
    )
    assert client.text("visit") == "True"
    assert error_member(client, "tools/call", name="whose")["code"] == -32602


@pytest.mark.parametrize("newer", URLS)
def test_content_in_an_answer_to_url_elicitation_is_ignored(connect, newer, ask):
    """Data that the user enters on the page must not pass through the client."""
    accepted = {"action": "accept", "content": {"answer": "hunter2", "token": "hunter2"}}
    client = connect(server=ask("Sign in.", url=PAGE), revision=newer, answers=answering(accepted))
    assert client.text("ask") == "True"


def test_completion_notifies_only_the_client_that_was_asked(connect, server, committed):
    visiting(server)
    clients = [
        connect(server=server, revision="2025-11-25", answers=answering({"action": "accept"}))
        for _ in range(2)
    ]
    for client in clients:
        assert client.text("visit") == "True"
    ids = [asked(client)["elicitationId"] for client in clients]
    assert ids[0] != ids[1] and asked(clients[0])["url"].endswith(ids[0])
    with committed:
        for _ in range(2):  # once, though it is told twice
            notify_elicitation_complete(ids[0], server=server)
        notify_elicitation_complete("unknown", server=server)
    clients[0].until(lambda: clients[0].notes)
    for client in clients:
        client.settle()
    assert clients[0].notes == [
        {
            "jsonrpc": "2.0",
            "method": "notifications/elicitation/complete",
            "params": {"elicitationId": ids[0]},
        }
    ]
    assert clients[1].notes == []


@pytest.mark.parametrize("name", REVISIONS)
def test_url_required_is_an_error_only_in_2025_11_25(connect, name, server):
    client = connect(server=visiting(server), revision=name)
    response = response_to(client, "tools/call", name="required")
    if name == "2025-11-25":
        assert response["error"]["code"] == -32042
    elif name in URLS:
        assert response["result"]["resultType"] == "input_required"
    else:
        assert response["result"]["isError"] and PAGE in str(response)
    for how in ("tool", "bug", "protocol"):
        failed = response_to(client, "tools/call", name="fail", arguments={"how": how})
        assert failed.get("error", {}).get("code") in (None, 1)
    for missing in ("nothing", "visit\0"):
        assert error_member(client, "tools/call", name=missing)["code"] == -32602
    bare = connect(server=server, revision=name, capabilities={"elicitation": {"form": {}}})
    assert "isError" in response_to(bare, "tools/call", name="required")["result"]


def test_url_required_error_lists_elicitations_with_ids(connect, server, committed):
    client = connect(server=visiting(server), revision="2025-11-25")
    (page,) = error_member(client, "tools/call", name="required")["data"]["elicitations"]
    assert page["mode"] == "url" and page["message"] == "Sign in first."
    assert page["url"] == f"{PAGE}?id={page['elicitationId']}" and len(page["elicitationId"]) >= 32
    (other,) = error_member(client, "tools/call", name="required")["data"]["elicitations"]
    assert other["elicitationId"] != page["elicitationId"]
    with committed:
        notify_elicitation_complete(page["elicitationId"], server=server)
    client.until(lambda: client.notes)
    assert client.notes[0]["params"] == {"elicitationId": page["elicitationId"]}


@pytest.mark.parametrize("name", sorted(REVISIONS.keys() - {"2025-11-25"}))
def test_other_revisions_get_no_elicitation_complete(connect, name, server, committed):
    client = connect(server=visiting(server), revision=name)
    response = response_to(client, "tools/call", name="required")
    (id,) = set(re.findall(r"sign-in\?id=([\w-]+)", str(response)))
    with committed:
        notify_elicitation_complete(id, server=server)
    client.settle()
    assert client.notes == []


def test_questions_and_answers_are_not_logged(connect, revision, ask, caplog):
    caplog.set_level(logging.DEBUG)
    server = ask("What is the diagnosis?", str)
    given = answering(accept({"answer": "gout"}))
    assert connect(server=server, revision=revision, answers=given).text("ask") == "'gout'"
    assert "gout" not in caplog.text and "diagnosis" not in caplog.text
