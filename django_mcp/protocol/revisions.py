"""
The published revisions of the specification as facts, and encoding of messages for each of them.

All differences between revisions are in this module or in ``changes``. No other module compares or
names a revision; it reads an attribute of a ``Revision``.

All other code uses the terms of the newest revision ("canonical" values). The ``encode_...``
functions convert a canonical value, change by change, to the client's revision. ``decode_answer``
converts a client's answer to the newest revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .changes.requests import ANSWERS, REQUESTS, blocks
from .changes.responses import ERRORS, NOTIFICATIONS, RESULTS
from .jsonrpc import JSON, Id, InvalidParams, ProtocolError, UnsupportedVersion

# RFC 5424, least severe first.
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


@dataclass(frozen=True, slots=True, repr=False)
class Revision:
    """One published revision of the specification, as facts that other modules read."""

    name: str
    requests: frozenset[str]  # the client may send
    notifications: frozenset[str]  # the client may send
    sends: frozenset[str]  # notifications the server may send
    asks: frozenset[str]  # requests the server may make, or put into an input-required result
    handshake: bool = True  # initialize, then a session; if False, each request is independent
    batching: bool = False  # JSON-RPC arrays
    version_header: bool = True  # MCP-Protocol-Version is expected over HTTP
    priming: bool = False  # SSE streams open with an empty event that carries an id
    one_stream: bool = False  # all messages to a session go on one stream
    null_ids: bool = False  # an error for an id that could not be read has "id": null on a pipe
    capability_features: bool = False  # a client's capabilities name features, such as "url"
    capability_errors: bool = False  # a missing capability is a JSON-RPC error, not a tool error
    input_required: bool = False  # the server asks by a result instead of by requests
    structured_content: bool = False  # beside the text of a tool's result
    any_structured_content: bool = False  # of any type, not only an object
    url_elicitation: bool = False  # a question may be a page to visit
    url_elicitation_error: bool = False  # an error may name the pages to visit first
    elicitation_complete: bool = False  # a notification says that a page was completed
    scope_challenges: bool = True  # a request whose token lacks a scope may get 403
    sampling_tools: bool = False  # the model may use tools in sampling

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Revision {self.name}>"

    def null_id_errors(self, transport: str) -> bool:
        """Whether an error about a message without a readable id says ``"id": null``.

        JSON-RPC says so, and MCP's schemas forbid it; the later ones let the id be left out.
        """
        return self.null_ids and transport == "stdio"


_REQUESTS = frozenset((
    "completion/complete", "prompts/get", "prompts/list", "resources/list", "resources/read",
    "resources/templates/list", "tools/call", "tools/list",
))  # fmt: skip
_HANDSHAKE_REQUESTS = _REQUESTS | {
    "initialize", "logging/setLevel", "ping", "resources/subscribe", "resources/unsubscribe",
}  # fmt: skip
_NOTIFICATIONS = frozenset((
    "notifications/cancelled", "notifications/initialized", "notifications/progress",
    "notifications/roots/list_changed",
))  # fmt: skip
_SENDS = frozenset((
    "notifications/cancelled", "notifications/message", "notifications/progress",
    "notifications/prompts/list_changed", "notifications/resources/list_changed",
    "notifications/resources/updated", "notifications/tools/list_changed",
))  # fmt: skip
_ASKS = frozenset(("ping", "roots/list", "sampling/createMessage"))
_ELICIT = "elicitation/create"


def _by_handshake(name: str, **facts: Any) -> Revision:
    common = {"notifications": _NOTIFICATIONS, "sends": _SENDS, "asks": _ASKS}
    return Revision(name, _HANDSHAKE_REQUESTS, **(common | facts))


_PUBLISHED = (
    _by_handshake("2024-11-05", version_header=False, null_ids=True, scope_challenges=False),
    _by_handshake("2025-03-26", version_header=False, null_ids=True, batching=True),
    _by_handshake(
        "2025-06-18",
        null_ids=True,
        asks=_ASKS | {_ELICIT},
        structured_content=True,
    ),
    _by_handshake(
        "2025-11-25",
        asks=_ASKS | {_ELICIT},
        sends=_SENDS | {"notifications/elicitation/complete"},
        priming=True,
        capability_features=True,
        structured_content=True,
        url_elicitation=True,
        url_elicitation_error=True,
        elicitation_complete=True,
        sampling_tools=True,
    ),
    Revision(
        "2026-07-28",
        requests=_REQUESTS | {"server/discover", "subscriptions/listen"},
        notifications=frozenset({"notifications/cancelled"}),
        sends=_SENDS | {"notifications/subscriptions/acknowledged"},
        asks=_ASKS - {"ping"} | {_ELICIT},
        handshake=False,
        capability_features=True,
        capability_errors=True,
        input_required=True,
        structured_content=True,
        any_structured_content=True,
        url_elicitation=True,
        sampling_tools=True,
    ),
)
REVISIONS: dict[str, Revision] = {revision.name: revision for revision in _PUBLISHED}
LATEST = _PUBLISHED[-1]
LATEST_HANDSHAKE = [revision for revision in _PUBLISHED if revision.handshake][-1]
# Newest first, as in error responses.
SUPPORTED = tuple(REVISIONS)[::-1]
# Clients use HTTP+SSE with every revision with a handshake, also with those that do not define it.
# It opens its stream before a revision is negotiated, so these facts hold for all of them.
_OVER_SSE: dict[str, Any] = {"one_stream": True, "priming": False, "scope_challenges": False}
# The revisions by transport and name.
REVISIONS_OVER: dict[str, dict[str, Revision]] = {
    "stdio": REVISIONS,
    "http": REVISIONS,
    "sse": {
        name: replace(revision, **_OVER_SSE) if revision.handshake else revision
        for name, revision in REVISIONS.items()
    },
}
# A request for one of these methods shows that the client uses no handshake.
STATELESS_ONLY = LATEST.requests - LATEST_HANDSHAKE.requests


def negotiate(requested: str) -> Revision:
    """Return the revision for the response to an ``initialize`` that asks for ``requested``.

    That is the newest revision with a handshake, if ``requested`` is unknown or has no handshake.
    """
    revision = REVISIONS.get(requested, LATEST_HANDSHAKE)
    return revision if revision.handshake else LATEST_HANDSHAKE


# Encoding: from the newest revision to a client's.


def encode_result(revision: Revision, method: str, result: JSON) -> JSON:
    """Return a canonical ``result`` of ``method`` in the form of ``revision``."""
    encoded: JSON = RESULTS.undo(revision.name, (method,), result)
    return encoded


def encode_error(revision: Revision, error: ProtocolError) -> JSON:
    """Return the ``error`` member of a response, in the form of ``revision``."""
    encoded: JSON = {"code": error.code, "message": error.message}
    if (data := _error_data(error)) is not None:
        encoded["data"] = data
    encoded = ERRORS.undo(revision.name, type(error).__mro__, encoded, error)
    return encoded


def _error_data(error: ProtocolError) -> Any:
    if isinstance(error, UnsupportedVersion):
        return error.data | {"supported": list(SUPPORTED)}
    return error.data


def encode_notification(revision: Revision, method: str, params: JSON) -> JSON | None:
    """Return the whole message, or None if ``revision`` has no such notification."""
    if method not in revision.sends:
        return None
    params = NOTIFICATIONS.undo(revision.name, (method,), params)
    return {"jsonrpc": "2.0"} | _call(method, params)


def encode_request(revision: Revision, id: Id, method: str, params: JSON) -> JSON | None:
    """Return the whole message, or None if ``revision`` cannot ask the client this question.

    None also for revisions whose servers make no requests: see ``encode_input_requests``.
    """
    if revision.input_required or method not in revision.asks:
        return None
    encoded = REQUESTS.undo(revision.name, (method,), params, id)
    if encoded is None:
        return None
    return {"jsonrpc": "2.0", "id": id} | _call(method, encoded)


def encode_input_requests(revision: Revision, requests: Mapping[str, JSON]) -> JSON:
    """Return the ``inputRequests`` of a result that needs input: ``{key: {"method", "params"}}``.

    Raise ``ValueError`` if the revision asks by requests, or cannot ask one of the questions.
    """
    if not revision.input_required:
        raise ValueError(f"{revision} asks by requests of its own.")
    return {key: _input_request(revision, key, **request) for key, request in requests.items()}


def _input_request(revision: Revision, key: str, method: str, params: JSON | None = None) -> JSON:
    if method not in revision.asks:
        raise ValueError(f"{revision} cannot ask {method}.")
    return _call(method, REQUESTS.undo(revision.name, (method,), params or {}, key))


def _call(method: str, params: JSON) -> JSON:
    return {"method": method, "params": params} if params else {"method": method}


# Decoding: from a client's revision to the newest.


def decode_answer(revision: Revision, method: str, params: JSON, result: Any) -> JSON:
    """Return a client's ``result`` to the canonical question (``method``, ``params``) as canonical.

    The content of an answer to sampling becomes a list. Raise ``InvalidParams`` if the result does
    not answer such a question. The caller validates the values against the form.
    """
    if not isinstance(result, dict) or not _ANSWERS[method](result):
        raise InvalidParams(f"This does not answer {method}")
    answer: JSON = ANSWERS.redo(revision.name, (method,), result, params)
    if method == "sampling/createMessage":
        answer = answer | {"content": blocks(answer["content"])}
    return answer


def _is_elicited(result: JSON) -> bool:
    action = result.get("action")
    content = result.get("content")
    return action in ("accept", "decline", "cancel") and isinstance(content, dict | None)


def _is_sampled(result: JSON) -> bool:
    content = result.get("content")
    known = result.get("role") in ("user", "assistant") and isinstance(result.get("model"), str)
    return known and all(isinstance(block, dict) and "type" in block for block in blocks(content))


def _is_rooted(result: JSON) -> bool:
    roots = result.get("roots")
    return isinstance(roots, list) and all(
        isinstance(root, dict) and isinstance(root.get("uri"), str) for root in roots
    )


_ANSWERS = {
    "elicitation/create": _is_elicited,
    "ping": lambda result: True,
    "roots/list": _is_rooted,
    "sampling/createMessage": _is_sampled,
}
