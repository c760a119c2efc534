"""Errors of tools, prompts and resources: what the model, the client and the log get."""

from __future__ import annotations

from typing import Annotated

import pytest
from django.core.exceptions import (
    ObjectDoesNotExist,
    PermissionDenied,
    SuspiciousOperation,
    ValidationError,
)
from django.http import Http404
from django.utils.translation import gettext_lazy

import django_mcp as mcp
from django_mcp.calls.errors import MASKED, in_words
from django_mcp.exceptions import Busy
from tests.client import RpcError

SECRET = "the password is hunter2"
URL = "https://shop.example/in?id={elicitation_id}"

WORDS = {
    "tool": (mcp.ToolError("Not on a Sunday."), "Not on a Sunday."),
    "own": (type("Closed", (mcp.ToolError,), {"__doc__": "We are closed."})(), "We are closed."),
    "denied": (PermissionDenied(), "Permission denied."),
    "denied in words": (PermissionDenied("Only for staff."), "Only for staff."),
    "missing": (Http404(), "Not found."),
    "missing in words": (Http404("No Invoice."), "No Invoice."),
    "lazy": (ValidationError(gettext_lazy("Enter a valid value.")), "Enter a valid value."),
    "validation": (ValidationError("Too %(what)s.", params={"what": "long"}), "Too long."),
    "validations": (ValidationError(["One.", "Two."]), "One. Two."),
    "fields": (
        ValidationError({"number": ["Taken.", "Ugly."], "__all__": ["All wrong."]}),
        "number: Taken. Ugly. All wrong.",
    ),
}
BUGS = [
    RuntimeError(SECRET), KeyError(SECRET), AssertionError(SECRET), ObjectDoesNotExist(SECRET),
    PermissionError(SECRET), SuspiciousOperation(SECRET), TimeoutError(SECRET), Exception(),
    ExceptionGroup(SECRET, [ValueError(SECRET)]),
]  # fmt: skip


@pytest.fixture
def raising(server):
    """A server with one of each that raises ``server._error``."""

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def tool(request: mcp.Request) -> str:
        raise server._error

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def atool(request: mcp.Request) -> str:
        raise server._error

    @server.prompt(permission=mcp.PUBLIC)
    def prompt(request: mcp.Request) -> str:
        raise server._error

    @server.resource("shop://x", permission=mcp.PUBLIC)
    def resource(request: mcp.Request) -> str:
        raise server._error

    return server


def refused(client, method, **params):
    with pytest.raises(RpcError) as error:
        client.request(method, **params)
    return error.value


@pytest.mark.parametrize("how", WORDS)
def test_error_message_of_the_project_is_sent(connect, raising, revision, how):
    raising._error, words = WORDS[how]
    client = connect(server=raising, revision=revision)
    assert client.failure("tool") == client.failure("atool") == words
    prompt = refused(client, "prompts/get", name="prompt")
    assert (prompt.code, prompt.message) == (-32603, words)


def test_busy_is_a_protocol_error(connect, raising, revision):
    """Nothing has happened, so the client may send the same request again."""
    raising._error = Busy("Come back later.")
    client = connect(server=raising, revision=revision)
    for tool in ("tool", "atool"):
        found = refused(client, "tools/call", name=tool)
        assert (found.code, found.message) == (-32603, "Come back later.")


@pytest.mark.parametrize("error", BUGS, ids=lambda error: type(error).__name__)
def test_unexpected_exception_is_masked_and_logged_in_full(connect, raising, error, caplog):
    raising._error = error
    client = connect(server=raising)
    assert client.failure("tool") == client.failure("atool") == MASKED
    for method, params in (
        ("prompts/get", {"name": "prompt"}),
        ("resources/read", {"uri": "shop://x"}),
    ):
        found = refused(client, method, **params)
        assert (found.code, found.message, found.data) == (-32603, MASKED, None)
    assert [record.message for record in caplog.records] == [
        "Call failed: method=tools/call name='tool'",
        "Call failed: method=tools/call name='atool'",
        "Call failed: method=prompts/get name='prompt'",
        "Call failed: method=resources/read uri='shop://x'",
    ]  # fmt: skip
    assert all(record.exc_info[1] is error for record in caplog.records)
    assert [record.method for record in caplog.records][0] == "tools/call"


def test_unexpected_exception_is_shown_under_debug(connect, raising, settings):
    settings.DEBUG = True
    raising._error = RuntimeError("line one\nline two")
    assert connect(server=raising).failure("tool") == "RuntimeError: line one line two"


def test_protocol_error_is_sent_with_its_code_and_data(connect, raising, revision):
    raising._error = mcp.ProtocolError("No", code=4711, data={"a": 1})
    client = connect(server=raising, revision=revision)
    for method, params in (
        ("tools/call", {"name": "tool"}),
        ("tools/call", {"name": "atool"}),
        ("prompts/get", {"name": "prompt"}),
        ("resources/read", {"uri": "shop://x"}),
    ):
        found = refused(client, method, **params)
        assert (found.code, found.message, found.data) == (4711, "No", {"a": 1})


def test_invalid_arguments_are_tool_errors_or_protocol_errors(connect, server, revision):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def tool(request: mcp.Request, day: int, month: int) -> str:
        return ""

    @server.prompt(permission=mcp.PUBLIC)
    def prompt(request: mcp.Request, day: int, month: int) -> str:
        return ""

    client = connect(server=server, revision=revision)
    words = client.failure("tool", day="x", month="y")
    assert "day" in words and "month" in words
    found = refused(client, "prompts/get", name="prompt", arguments={"day": "x", "month": "y"})
    assert found.code == -32602 and "day" in found.message and ". " not in found.message


def test_missing_client_capability_is_named(connect, raising, revision):
    raising._error = mcp.Unsupported({"sampling": {"tools": {}}})
    client = connect(server=raising, revision=revision, capabilities={})
    response = client.wait(client.start("tools/call", name="tool"))
    prompt = refused(client, "prompts/get", name="prompt")
    if client.revision.capability_errors:
        required = {"requiredCapabilities": {"sampling": {"tools": {}}}}
        assert (response["error"]["code"], response["error"]["data"]) == (-32021, required)
        assert (prompt.code, prompt.data) == (-32021, required)
    else:
        assert response["result"]["isError"]
        assert "does not support sampling" in response["result"]["content"][0]["text"]
        assert prompt.code in (-32600, -32602, -32603) and "capability" in prompt.message


# What must be done in a browser first.


METHODS = {
    "tools/call": {"name": "tool"},
    "prompts/get": {"name": "prompt"},
    "resources/read": {"uri": "shop://x"},
}


@pytest.mark.parametrize("method", METHODS)
def test_url_required_is_sent_in_the_form_of_the_revision(connect, raising, revision, method):
    raising._error = mcp.UrlRequired("Sign in.", URL)
    opened: list[str] = []

    def accept(params):
        opened.append(params["url"])
        return {"action": "accept"}

    client = connect(server=raising, revision=revision, answers={"elicitation/create": accept})
    response = client.wait(client.start(method, **METHODS[method]))
    if client.revision.url_elicitation_error:
        (page,) = response["error"]["data"]["elicitations"]
        assert response["error"]["code"] == -32042 and page["elicitationId"] in page["url"]
        assert page["mode"] == "url" and page["message"] == "Sign in."
    elif client.revision.url_elicitation:
        (asked,) = response["result"]["inputRequests"].values()
        assert asked["params"]["mode"] == "url" and "{" not in asked["params"]["url"]
        raising._error = mcp.ToolError("signed in")
        response = client.wait(client.start(method, **METHODS[method] | client._retry(
            response["result"])))  # fmt: skip
        assert "signed in" in f"{response}" and opened
    else:
        assert "Open https://shop.example/in?id=" in f"{response}"


def test_url_required_is_text_for_clients_without_url_elicitation(connect, raising, revision):
    raising._error = mcp.UrlRequired("Sign in.", URL)
    client = connect(server=raising, revision=revision, capabilities={"elicitation": {"form": {}}})
    words = client.failure("tool")
    assert words.startswith("Sign in. Open https://shop.example/in?id=") and "{" not in words


def test_accepted_but_uncompleted_url_elicitation_becomes_text(connect, raising):
    raising._error = mcp.UrlRequired("Sign in.", URL)
    answers = {"elicitation/create": lambda params: {"action": "accept"}}
    client = connect(server=raising, answers=answers)
    assert client.failure("tool").startswith("Sign in. Open https://")
    assert len(client.asked) == 1


def test_declined_url_elicitation_is_a_tool_error(connect, raising):
    raising._error = mcp.UrlRequired("Sign in.", URL)
    answers = {"elicitation/create": lambda params: {"action": "decline"}}
    assert "declined" in connect(server=raising, answers=answers).failure("tool")


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_url_required_with_a_javascript_url_is_masked(connect, raising, revision, caplog):
    raising._error = mcp.UrlRequired("Sign in.", "javascript:alert(1)")
    client = connect(server=raising, revision=revision)
    assert client.failure("tool") == MASKED and "javascript" in caplog.text


def completed(request, text, context):
    raise mcp.UrlRequired("Sign in.", URL)


def test_url_required_in_a_completion_is_text(connect, server, db):
    @server.prompt(permission=mcp.PUBLIC)
    def prompt(request: mcp.Request, city: Annotated[str, mcp.Complete(completed)]) -> str:
        return city

    found = refused(
        connect(server=server), "completion/complete",
        ref={"type": "ref/prompt", "name": "prompt"}, argument={"name": "city", "value": ""},
    )  # fmt: skip
    assert found.message.startswith("Sign in. Open https://")


def test_unexpected_exception_has_no_message():
    assert in_words(ValueError(SECRET)) is None
