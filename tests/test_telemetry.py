"""Spans and metrics by the semantic conventions for MCP, and what Sentry gets."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler
from pydantic import BaseModel, SecretStr, model_validator

import django_mcp as mcp
from django_mcp.apps import describe_calls_to_sentry
from django_mcp.calls import records
from django_mcp.protocol.connection import ClientCall
from django_mcp.protocol.revisions import REVISIONS
from django_mcp.sentry import describe_to_sentry
from django_mcp.storage import sessions
from django_mcp.telemetry import MCPInstrumentor
from tests.client import RpcError

pytestmark = pytest.mark.django_db
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Telemetry:
    """The spans and metrics of one test."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracer_provider = TracerProvider(sampler)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meter_provider = MeterProvider([self.reader])

    def spans(self, name: str) -> list[Any]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> Any:
        (found,) = self.spans(name)
        return found

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        metrics = data.resource_metrics[0].scope_metrics[0].metrics if data else []
        return [point for one in metrics if one.name == name for point in one.data.data_points]


@pytest.fixture
def telemetry(request) -> Iterator[Telemetry]:
    found, instrumentor = Telemetry(getattr(request, "param", None)), MCPInstrumentor()
    instrumentor.instrument(
        tracer_provider=found.tracer_provider, meter_provider=found.meter_provider
    )
    yield found
    instrumentor.uninstrument()


@pytest.fixture
def declared(server):
    @server.tool
    def count(request: mcp.Request) -> int:
        with trace.get_tracer("shop").start_as_current_span("of the project"):
            return User.objects.count()

    @server.tool
    async def acount(request: mcp.Request) -> int:
        return await User.objects.acount()

    @server.tool
    def fail(request: mcp.Request) -> str:
        raise KeyError("a secret")

    @server.prompt
    def greet(request: mcp.Request) -> str:
        return "Hello"

    return server


def tried(client, method, **params):
    try:
        client.request(method, **params)
    except RpcError:
        return


def test_span_of_a_tool_follows_the_conventions(connect, declared, alice, revision, telemetry):
    tried(connect(alice, server=declared, revision=revision), "tools/call", name="count")
    span = telemetry.span("tools/call count")
    request_id = span.attributes["jsonrpc.request.id"]
    assert dict(span.attributes) == {
        "mcp.method.name": "tools/call", "gen_ai.tool.name": "count",
        "gen_ai.operation.name": "execute_tool", "mcp.protocol.version": revision,
        "network.transport": "pipe", "jsonrpc.request.id": request_id, "user.id": str(alice.pk),
    }  # fmt: skip
    assert span.kind is trace.SpanKind.SERVER and span.status.is_ok is not False
    (point,) = [
        one for one in telemetry.points("mcp.server.operation.duration")
        if one.attributes["mcp.method.name"] == "tools/call"
    ]  # fmt: skip
    assert point.count == 1 and 0 < point.sum < 60
    assert "user.id" not in point.attributes and "jsonrpc.request.id" not in point.attributes


@pytest.mark.parametrize("name", ["count", "acount"])
def test_spans_of_the_projects_code_and_queries_are_children(
    connect, declared, alice, telemetry, name
):
    tracer = telemetry.tracer_provider.get_tracer("database")

    def traced(execute, sql, params, many, context):
        with tracer.start_as_current_span("query"):
            return execute(sql, params, many, context)

    client = connect(alice, server=declared)
    with connection.execute_wrapper(traced):
        tried(client, "tools/call", name=name)
    call = telemetry.span(f"tools/call {name}")
    queries = [one for one in telemetry.exporter.get_finished_spans() if one.name == "query"]
    assert call.context.span_id in {one.parent.span_id for one in queries if one.parent}


def test_span_of_the_client_is_the_parent(connect, declared, alice, telemetry):
    meta = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": 5}
    tried(connect(alice, server=declared), "prompts/get", name="greet", _meta=meta)
    span = telemetry.span("prompts/get greet")
    assert trace.format_trace_id(span.context.trace_id) == TRACE
    assert trace.format_span_id(span.parent.span_id) == SPAN
    assert span.attributes["gen_ai.prompt.name"] == "greet"


@pytest.mark.parametrize(
    ("telemetry", "recorded"),
    [(ParentBased(ALWAYS_ON), True), (ParentBased(ALWAYS_OFF), False)],
    indirect=["telemetry"],
)
def test_anonymous_client_does_not_decide_about_sampling(
    connect, server, alice, telemetry, recorded
):
    """Attack: the flag 01 of ``traceparent`` makes the server record each call."""

    @server.tool(permission=mcp.PUBLIC)
    def look(request: mcp.Request) -> str:
        return "seen"

    meta = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    tried(connect(server=server), "tools/call", name="look", _meta=meta)
    found = telemetry.spans("tools/call look")
    assert bool(found) is recorded
    for span in found:
        (link,) = span.links
        assert trace.format_trace_id(link.context.trace_id) == TRACE
        assert span.parent is None and span.context.trace_id != link.context.trace_id
    tried(connect(alice, server=server), "tools/call", name="look", _meta=meta)
    assert telemetry.spans("tools/call look")[-1].parent is not None


@pytest.mark.parametrize("parent", ["x", "00-" + "0" * 32 + "-" + SPAN + "-01", 5, ["a"]])
def test_wrong_traceparent_is_ignored(connect, declared, alice, telemetry, parent):
    tried(
        connect(alice, server=declared), "tools/call", name="count", _meta={"traceparent": parent}
    )
    assert telemetry.span("tools/call count").parent is None


def test_failed_call_has_an_error_without_its_text(connect, declared, alice, telemetry):
    tried(connect(alice, server=declared), "tools/call", name="fail")
    span = telemetry.span("tools/call fail")
    assert span.attributes["error.type"] == "tool_error"
    assert span.status.status_code is trace.StatusCode.ERROR
    assert "secret" not in span.to_json()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_question_is_no_error(http, server, telemetry, revision):
    @server.tool(permission=mcp.PUBLIC)
    def confirm(request: mcp.Request) -> str:
        return str(request.elicit("Really?", bool))

    yes = {"elicitation/create": lambda params: {"action": "accept", "content": {"answer": True}}}
    assert http(server=server, revision=revision, answers=yes).text("confirm") == "True"
    asking, ended = telemetry.spans("tools/call confirm")
    for span in (asking, ended):
        assert "error.type" not in span.attributes and span.status.is_ok


def test_unknown_names_make_no_new_series(connect, declared, alice, telemetry):
    client = connect(alice, server=declared)
    for number in range(3):
        tried(client, "tools/call", name=f"invented_{number}")
    points = telemetry.points("mcp.server.operation.duration")
    (point,) = [one for one in points if one.attributes.get("error.type") == "-32602"]
    assert point.count == 3 and point.attributes["rpc.response.status_code"] == "-32602"
    assert "invented" not in repr(points)


def test_session_has_a_duration(telemetry):
    _, session = sessions.create(
        server="default", owner="", user=None, revision="2025-11-25", client_info={},
        capabilities={},
    )  # fmt: skip
    sessions.end(session)
    (point,) = telemetry.points("mcp.server.session.duration")
    assert point.count == 1 and point.sum < 60 and session.created <= timezone.now()
    assert dict(point.attributes) == {
        "network.transport": "tcp", "mcp.protocol.version": "2025-11-25",
    }  # fmt: skip


def test_audit_entry_and_log_have_the_trace_of_the_span(connect, declared, alice, telemetry):
    from django_mcp.models import AuditEntry

    declared.audit = True
    tried(connect(alice, server=declared), "tools/call", name="count")
    span = telemetry.span("tools/call count")
    assert AuditEntry.objects.get().trace_id == trace.format_trace_id(span.context.trace_id)


def test_uninstrumented_server_has_no_wrapper(telemetry):
    assert len(records.wrappers) == 1
    MCPInstrumentor().uninstrument()
    assert records.wrappers == []
    MCPInstrumentor().instrument()


@pytest.mark.parametrize("is_on", [False, True])
def test_calls_run_no_code_of_telemetry_while_it_is_off(connect, declared, alice, request, is_on):
    """It is installed here, as it may be in a project that does not use it."""
    if is_on:
        request.getfixturevalue("telemetry")
    modules = set()

    def note(frame, event, argument):
        modules.add(frame.f_globals.get("__name__", ""))

    client = connect(alice, server=declared)
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        client.request("tools/call", name="acount")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert "django_mcp.calls.runner" in modules
    found = {one for one in modules if one.startswith(("opentelemetry", "django_mcp.telemetry"))}
    assert bool(found) is is_on


@pytest.fixture
def described():
    from sentry_sdk.scope import global_event_processors

    before = list(global_event_processors)
    describe_calls_to_sentry()
    describe_calls_to_sentry()  # as tests that override INSTALLED_APPS do
    yield
    records.wrappers.remove(describe_to_sentry)
    global_event_processors[:] = before


@pytest.fixture
def events(described):
    """The events that Sentry would get."""
    import sentry_sdk

    found: list[dict[str, Any]] = []
    with sentry_sdk.new_scope() as scope:
        note = lambda event, hint: found.append(event)  # noqa: E731
        options = {"before_send": note, "include_source_context": False}
        scope.set_client(sentry_sdk.Client("https://key@sentry.invalid/1", **options))
        yield found


class Card(BaseModel):
    number: SecretStr

    @model_validator(mode="after")
    def fail(self):
        if self.number.get_secret_value() == "hunter2-bug":
            raise RuntimeError("a bug")
        return self


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("secret", ["hunter2-secret", "hunter2-bug"])
def test_sentry_gets_no_arguments(connect, server, alice, events, is_async, secret):
    """Sentry sends the local variables of all functions in a traceback."""

    def fail(request: mcp.Request, card: Card) -> str:
        raise KeyError("a bug")

    async def afail(request: mcp.Request, card: Card) -> str:
        own = [row async for row in User.objects.filter(username="x")]
        raise KeyError(f"a bug {own}")

    server.tool(name="fail")(afail if is_async else fail)
    client = connect(alice, server=server)
    tried(client, "tools/call", name="fail", arguments={"card": {"number": secret}})
    (event,) = events
    assert "hunter2" not in repr(event)
    frames = event["exception"]["values"][-1]["stacktrace"]["frames"]
    assert any(frame["module"] == __name__ and frame["vars"] for frame in frames)


def test_description_of_a_call_has_no_arguments():
    revision = REVISIONS["2025-11-25"]
    call = ClientCall(1, "tools/call", {"arguments": {"a": "hunter2"}}, revision)
    assert "hunter2" not in repr(call) and "tools/call" in repr(call)


def test_sentry_gets_the_transaction_the_user_and_the_tool(connect, declared, alice, events):
    client = connect(alice, server=declared)
    tried(client, "tools/call", name="fail")
    tried(client, "tools/call", name="invented")
    (event,) = events
    assert event["transaction"] == "tools/call fail"
    assert event["user"] == {"id": str(alice.pk)}
    assert event["tags"]["mcp.tool"] == "fail" and event["tags"]["mcp.server"] == declared.name
