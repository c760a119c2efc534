"""
Traces and metrics by OpenTelemetry.

``MCPInstrumentor`` makes one span for each request of a client and records its duration, by the
semantic conventions for MCP
(https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md). The
client's span is the parent if the client sent ``traceparent`` in ``_meta``. That of an anonymous
client is only linked. The project's code runs in a copy of the span's context, so spans of queries
are its children.

Names that a client invented are not in names of spans and attributes of metrics: each new value
would be a new time series.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.utils import timezone
from opentelemetry import metrics, propagate, trace
from opentelemetry.instrumentation.instrumentor import (  # type: ignore[attr-defined]
    BaseInstrumentor,
)
from opentelemetry.trace import Link, SpanKind, StatusCode

from . import __version__, signals
from .calls.records import CallOutcome, wrappers
from .protocol.jsonrpc import ProtocolError

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from .calls.records import CallRecord
    from .models import Session

# The buckets that the conventions give for both durations, in seconds.
BUCKETS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300]
PROPAGATED = ("traceparent", "tracestate", "baggage")  # keys of ``_meta``
FAILURES = frozenset((
    CallOutcome.ERROR, CallOutcome.FAILED, CallOutcome.DENIED, CallOutcome.THROTTLED,
))  # fmt: skip


class MCPInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Instruments the servers of a project: ``MCPInstrumentor().instrument()``.

    ``tracer_provider`` and ``meter_provider`` replace the global ones. The command
    ``opentelemetry-instrument`` calls it without further code.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return what it instruments. It is part of that, so there is nothing to check."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        tracer = trace.get_tracer("django_mcp", __version__, kwargs.get("tracer_provider"))
        meter = metrics.get_meter("django_mcp", __version__, kwargs.get("meter_provider"))
        self._telemetry = Telemetry(tracer, meter)
        wrappers.append(self._telemetry.trace_call)
        signals.session_ended.connect(self._telemetry.end_session)

    def _uninstrument(self, **kwargs: Any) -> None:
        wrappers.remove(self._telemetry.trace_call)
        signals.session_ended.disconnect(self._telemetry.end_session)


class Telemetry:
    """The tracer and the instruments."""

    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter) -> None:
        self._tracer = tracer
        self._calls = meter.create_histogram(
            "mcp.server.operation.duration",
            unit="s",
            description="Duration of a request, from its arrival to its response",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._sessions = meter.create_histogram(
            "mcp.server.session.duration",
            unit="s",
            description="Duration of a session",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )

    @contextmanager
    def trace_call(self, record: CallRecord) -> Iterator[None]:
        """Surround a call with a span, and record its duration."""
        parent, ambient = _context_of(record), trace.get_current_span().get_span_context()
        linked = ambient if parent is not None else None
        if parent is not None and not record.principal.is_authenticated:
            # The project's sampler decides whether to record calls of anonymous clients. Samplers
            # usually follow the flag of the parent, so with a parent the client would decide.
            parent, linked = None, trace.get_current_span(parent).get_span_context()
        links = [Link(linked)] if linked is not None and linked.is_valid else []
        failure: BaseException | None = None
        with self._tracer.start_as_current_span(
            record.method,
            context=parent,
            kind=SpanKind.SERVER,
            attributes=_identifiers(record),
            links=links,
            record_exception=False,  # the text of an exception may contain secrets
            set_status_on_exception=False,
        ) as span:
            if (context := span.get_span_context()).is_valid:
                record.trace_id = trace.format_trace_id(context.trace_id)
            try:
                yield
            except BaseException as error:
                failure = error
                raise
            finally:
                attributes = _labels(record) | _error(record, failure)
                span.set_attributes(attributes)
                span.update_name(_span_name(record))
                if "error.type" in attributes:
                    span.set_status(StatusCode.ERROR)
                self._calls.record(record.elapsed(), attributes)

    def end_session(self, session: Session, **kwargs: Any) -> None:
        """Record how long a session lasted. Receives ``session_ended``."""
        seconds = (timezone.now() - session.created).total_seconds()
        attributes = {
            "network.transport": _network_transport(session.transport),
            "mcp.protocol.version": session.revision,
        }
        self._sessions.record(max(seconds, 0.0), attributes)


def _context_of(record: CallRecord) -> Context | None:
    """Return the context that the client sent in ``_meta``, or None."""
    meta = record.call.meta
    # Baggage goes on to other services, so anonymous clients may not set it.
    keys = PROPAGATED if record.principal.is_authenticated else PROPAGATED[:2]
    carrier = {key: meta[key] for key in keys if isinstance(meta.get(key), str)}
    return propagate.extract(carrier) if "traceparent" in carrier else None


def _identifiers(record: CallRecord) -> dict[str, Any]:
    """Return the attributes of the span alone: they have too many values for a metric."""
    found = {"mcp.method.name": record.method, "jsonrpc.request.id": str(record.call.id)}
    if record.session is not None:
        # The key of its row. The session id of the protocol is a secret.
        found["mcp.session.id"] = str(record.session)
    if record.principal.is_authenticated:
        found["user.id"] = str(record.user.pk)
    return found


def _labels(record: CallRecord) -> dict[str, Any]:
    """Return the attributes of the span and of the metric."""
    found = {
        "mcp.method.name": record.method,
        "mcp.protocol.version": record.revision,
        "network.transport": _network_transport(record.transport),
    }
    if record.method == "tools/call":
        found["gen_ai.operation.name"] = "execute_tool"
    if target := _target(record):
        kind = "prompt" if record.method == "prompts/get" else "tool"
        found[f"gen_ai.{kind}.name"] = target
    return found


def _target(record: CallRecord) -> str:
    """Return the name of a declared tool or prompt, or ""."""
    named = record.method in ("tools/call", "prompts/get") and record.declaration is not None
    return record.name if named else ""


def _span_name(record: CallRecord) -> str:
    return f"{record.method} {target}" if (target := _target(record)) else record.method


def _network_transport(transport: str) -> str:
    return "pipe" if transport == "stdio" else "tcp"


def _error(record: CallRecord, failure: BaseException | None) -> dict[str, Any]:
    """Return ``error.type``, and the code of a JSON-RPC error, if the call failed.

    A question, a wait for an approval and a cancelled call are no failures, although the first two
    end a call in a session by an exception.
    """
    if record.outcome not in FAILURES:
        return {}
    if isinstance(failure, ProtocolError):
        return {"error.type": str(failure.code), "rpc.response.status_code": str(failure.code)}
    return {"error.type": "tool_error" if failure is None else type(failure).__name__}
