"""All messages of the server conform to the published schema of each revision.

They contain no undeclared keys. Each change function is needed for that.
"""

import copy
import json
from contextlib import contextmanager

import pytest

from django_mcp.protocol.changes.requests import ANSWERS as ANSWER_CHANGES
from django_mcp.protocol.changes.requests import REQUESTS as REQUEST_CHANGES
from django_mcp.protocol.changes.responses import ERRORS as ERROR_CHANGES
from django_mcp.protocol.changes.responses import NOTIFICATIONS as NOTIFICATION_CHANGES
from django_mcp.protocol.changes.responses import RESULTS as RESULT_CHANGES
from django_mcp.protocol.connection import ClientCall, Connection
from django_mcp.protocol.revisions import (
    REVISIONS,
    decode_answer,
    encode_error,
    encode_input_requests,
    encode_notification,
    encode_request,
)

from ..oracle import message_violations, methods_of
from . import corpus

ALL = list(REVISIONS.values())
every_revision = pytest.mark.parametrize("revision", ALL, ids=str)

# Error, revision -> code, where it is not the same in all.
CODES = {
    "ResourceNotFound": [-32002, -32002, -32002, -32002, -32602],
    "HeaderMismatch": [-32600, -32600, -32600, -32600, -32020],
    "MissingCapability": [-32600, -32600, -32600, -32600, -32021],
    "UnsupportedVersion": [-32602, -32602, -32602, -32602, -32022],
    "UrlElicitationRequired": [-32600, -32600, -32600, -32042, -32600],
}


def result_problems(revision):
    for method, result in corpus.RESULTS:
        if method in revision.requests:
            call = ClientCall(1, method, {}, revision)
            yield from message_violations(revision, Connection().result(call, result), method)


def notification_problems(revision):
    for method, params in corpus.NOTIFICATIONS:
        message = encode_notification(revision, method, params)
        if message is not None:
            yield from message_violations(revision, message)


def request_problems(revision):
    for method, params in corpus.REQUESTS:
        message = encode_request(revision, "ask-1", method, params)
        if message is not None:
            yield from message_violations(revision, message)


def input_request_problems(revision):
    if revision.input_required:
        asked = [request for request in corpus.REQUESTS if request[0] in revision.asks]
        asked = {str(n): {"method": m, "params": p} for n, (m, p) in enumerate(asked)}
        requests = encode_input_requests(revision, asked)
        result = {"resultType": "input_required", "inputRequests": requests, "requestState": "s"}
        message = {"jsonrpc": "2.0", "id": 1, "result": result}
        yield from message_violations(revision, message, "tools/call")


def error_problems(revision):
    for error in corpus.ERRORS:
        message = Connection().error(1, error, revision)
        yield from message_violations(revision, message)
        codes = CODES.get(type(error).__name__)
        if codes and message["error"]["code"] != codes[ALL.index(revision)]:
            yield f"{revision}: {type(error).__name__} is {message['error']['code']}"


def answer_problems(revision):
    """Answers to questions in older revisions are decoded to the latest one."""
    ticked = {"toppings[c]": True, "toppings[h]": False}
    if revision in ALL[2:]:
        given = ticked if revision is ALL[2] else {"toppings": ["c"]}
        params = corpus.ELICITATION
        answer = {"action": "accept", "content": {"name": "Ada"} | given}
        decoded = decode_answer(revision, "elicitation/create", params, answer)
        if decoded["content"] != {"name": "Ada", "toppings": ["c"]}:
            yield f"{revision}: {decoded}"


KINDS = {
    "results": (result_problems, RESULT_CHANGES),
    "notifications": (notification_problems, NOTIFICATION_CHANGES),
    "requests": (request_problems, REQUEST_CHANGES),
    "errors": (error_problems, ERROR_CHANGES),
    "answers": (answer_problems, ANSWER_CHANGES),
}


PROBLEMS = [*(problems for problems, _ in KINDS.values()), input_request_problems]


@every_revision
@pytest.mark.parametrize("problems", PROBLEMS)
def test_messages_conform_to_the_schema(revision, problems):
    assert list(problems(revision)) == []


@contextmanager
def without_change(changelog, line):
    """The changelog without one of its lines."""
    lines = list(changelog.lines)
    changelog.lines[:] = [other for other in lines if other is not line]
    changelog.forget()
    try:
        yield
    finally:
        changelog.lines[:] = lines
        changelog.forget()


LINES = [
    pytest.param(problems, changelog, line, id=f"{kind}-{line.revision}-{line.change.__name__}")
    for kind, (problems, changelog) in KINDS.items()
    for line in changelog.lines
]


@pytest.mark.parametrize(("problems", "changelog", "line"), LINES)
def test_every_change_is_needed(problems, changelog, line):
    with without_change(changelog, line):
        found = [
            problem
            for revision in ALL
            if revision.name < line.revision
            for problem in problems(revision)
        ]
    assert found


def test_every_change_has_a_docstring_and_a_known_revision():
    for _, changelog in KINDS.values():
        assert all(line.change.__doc__ for line in changelog.lines)
        assert all(line.revision in REVISIONS for line in changelog.lines)


@every_revision
def test_encoding_does_not_modify_its_arguments(revision):
    before = copy.deepcopy(
        [corpus.RESULTS, corpus.NOTIFICATIONS, corpus.REQUESTS, [e.data for e in corpus.ERRORS]]
    )
    for _, (problems, _) in KINDS.items():
        list(problems(revision))
    after = [
        corpus.RESULTS, corpus.NOTIFICATIONS, corpus.REQUESTS, [e.data for e in corpus.ERRORS]
    ]  # fmt: skip
    assert json.dumps(before) == json.dumps(after)


@every_revision
def test_corpus_covers_all_methods(revision):
    assert {method for method, _ in corpus.RESULTS} >= revision.requests
    assert {method for method, _ in corpus.NOTIFICATIONS} >= revision.sends
    assert {method for method, _ in corpus.REQUESTS} >= revision.asks


# The experimental tasks of one revision are an extension, not part of the core protocol.
def core(methods):
    return {method for method in methods if "tasks/" not in method}


@every_revision
def test_methods_match_the_schema(revision):
    assert revision.requests == core(methods_of(revision.name, "ClientRequest"))
    assert revision.notifications == core(methods_of(revision.name, "ClientNotification"))
    assert revision.sends == core(methods_of(revision.name, "ServerNotification"))
    asked = "InputRequest" if revision.input_required else "ServerRequest"
    assert revision.asks == core(methods_of(revision.name, asked))


@every_revision
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_unreadable_message_is_rejected_without_an_id(revision, transport):
    connection = Connection(transport=transport)
    assert "id" not in connection.refuse(corpus.ERRORS[0])
    if revision.handshake:
        connection.receive(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": revision.name,
                    "capabilities": {},
                    "clientInfo": {"name": "n", "version": "1"},
                },
            }
        )
    message = connection.refuse(corpus.ERRORS[0])
    assert message == {
        "jsonrpc": "2.0",
        **({"id": None} if revision in ALL[:3] and transport == "stdio" else {}),
        "error": encode_error(revision, corpus.ERRORS[0]),
    }
