"""Each run of a call makes its request anew from the call and its principal."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser

from django_mcp.auth.principal import Principal
from django_mcp.calls.call_state import CallRun
from django_mcp.declarations.request import KnownAnswers, NoNotifier, StopFlag
from django_mcp.exceptions import Stopped
from django_mcp.protocol.connection import ClientCall
from django_mcp.protocol.revisions import REVISIONS
from tests.client import EVERYTHING


def call(revision="2026-07-28", method="tools/call", params=None, **given):
    return ClientCall(1, method, params or {}, REVISIONS[revision], **given)


def run(server, made=None, **given: Any) -> CallRun:
    return CallRun(made or call(), server, Principal(AnonymousUser()), None, NoNotifier(), **given)


def test_request_contains_what_the_call_contains(server, revision):
    made = call(
        revision, params={"name": "x"}, client_info={"name": "c", "version": "1"},
        capabilities={"roots": {}}, meta={"example.com/a": 1},
    )  # fmt: skip
    one = run(server, made, host="shop.example")
    request = one.request
    assert one.params == {"name": "x"} and request.server is server
    assert (request.revision, request._host) == (revision, "shop.example")
    assert request.client_info["name"] == "c" and request.meta == {"example.com/a": 1}
    assert request.can.roots and not request.can.sample and not request.cancelled
    assert request.user.is_anonymous


def test_runs_share_no_state(server):
    first, second = run(server), run(server)
    assert first.request is not second.request
    assert first.answers is not second.answers and first.stop is not second.stop


def test_stopped_run_is_cancelled(server):
    stop = StopFlag()
    one = run(server, stop=stop, answers=KnownAnswers(remembered={"step": 7}))
    assert one.request.once("step", lambda: 8) == 7
    stop.set()
    assert one.request.cancelled
    with pytest.raises(Stopped):
        one.request.progress(1)


@pytest.mark.parametrize(
    "method, params, subject",
    [
        ("tools/call", {"name": "refund"}, "method=tools/call name='refund'"),
        ("resources/read", {"uri": "shop://x"}, "method=resources/read uri='shop://x'"),
        ("tools/list", {}, "method=tools/list"),
        ("tools/call", {"name": None}, "method=tools/call"),
        ("tools/call", {"name": ["x"]}, "method=tools/call name=\"['x']\""),
        ("tools/call", {"name": "x\nERROR forged"}, "method=tools/call name='x\\nERROR forged'"),
        ("tools/call", {"name": "x" * 1000}, f"method=tools/call name='{'x' * 200}'"),
    ],
)
def test_subject_names_the_requested_object_on_one_line(server, method, params, subject):
    assert run(server, call(method=method, params=params)).subject == subject


OFFERED = {
    "2024-11-05": {"sampling": {"context": {}}, "roots": {"listChanged": True}},
    "2025-03-26": {"sampling": {"context": {}}, "roots": {"listChanged": True}},
    "2025-06-18": {
        "elicitation": {"form": {}}, "sampling": {"context": {}}, "roots": {"listChanged": True},
    },
    "2025-11-25": EVERYTHING,
    "2026-07-28": EVERYTHING,
}  # fmt: skip


def test_request_allows_only_questions_that_the_revision_defines(server, revision):
    can = run(server, call(revision, capabilities=EVERYTHING)).request.can
    expected = OFFERED[revision]
    assert can.elicit == ("elicitation" in expected) and can.roots and can.sample
    assert can.elicit_url == ("url" in expected.get("elicitation", {}))
    assert can.sample_tools == ("tools" in expected["sampling"]) and can.sample_context
    can = run(server, call(revision)).request.can
    assert not (can.elicit or can.roots or can.sample)
