"""
Everything that differs between revisions of the protocol: facts, and how each spells things.

Rule 1: a difference between revisions lives here or in ``changes`` or it does not exist. No other
module compares or names a revision; it asks a ``Revision`` for a fact.

Rule 2: the rest of the package speaks one vocabulary, that of the newest revision. A value is
written once and walked back, change by change, to the revision the client speaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .changes.answers import ANSWERS
from .changes.errors import ERRORS
from .changes.notifications import NOTIFICATIONS
from .changes.requests import REQUESTS, blocks
from .changes.results import RESULTS
from .jsonrpc import JSON, Id, InvalidParams, ProtocolError, UnsupportedVersion

# RFC 5424, least severe first.
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


@dataclass(frozen=True, slots=True, repr=False)
class Revision:
    """One published revision of the specification, as facts that other layers may ask about."""

    name: str
    requests: frozenset[str]  # the client may send
    notifications: frozenset[str]  # the client may send
    sends: frozenset[str]  # notifications the server may send
    asks: frozenset[str]  # requests the server may make, or put into an input-required result
    handshake: bool = True  # initialize first, then a session; else every request says it all
    batching: bool = False  # JSON-RPC arrays
    version_header: bool = True  # MCP-Protocol-Version is expected over HTTP
    priming: bool = False  # SSE streams open with an empty event that carries an id
    one_stream: bool = False  # all that is said to a session goes on one stream
    null_ids: bool = False  # an error for an id that could not be read has "id": null on a pipe
    capability_features: bool = False  # a client's capabilities name features, such as "url"
    capability_errors: bool = False  # a missing capability is a JSON-RPC error, not a tool's
    input_required: bool = False  # the server asks by a result, not by requests of its own
    structured_content: bool = False  # beside the text of a tool's result
    any_structured_content: bool = False  # of any type, not only an object
    url_elicitation: bool = False  # a question may be a page to visit
    url_elicitation_error: bool = False  # an error may name the pages to visit first
    elicitation_complete: bool = False  # a notification tells that a page was done with
    scope_challenges: bool = True  # what lacks a scope may be answered by 403
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
# Newest first, as clients are told.
SUPPORTED = tuple(REVISIONS)[::-1]
# The facts that are others where a transport carries a revision that was not made for it: HTTP+SSE
# opens its stream before there is a revision, and clients go on with it in all that shake hands.
_OVER: dict[str, dict[str, Any]] = {
    "sse": {"one_stream": True, "priming": False, "scope_challenges": False}
}
_CARRIED = {
    (transport, revision.name): replace(revision, **facts)
    for transport, facts in _OVER.items()
    for revision in _PUBLISHED
    if revision.handshake
}
# Asking for one of these is speaking without a handshake.
STATELESS_ONLY = LATEST.requests - LATEST_HANDSHAKE.requests


def negotiate(requested: str) -> Revision:
    """The revision with which to answer an ``initialize`` that asks for ``requested``."""
    revision = REVISIONS.get(requested, LATEST_HANDSHAKE)
    return revision if revision.handshake else LATEST_HANDSHAKE


def over(transport: str, revision: Revision) -> Revision:
    """A revision as that transport carries it."""
    return _CARRIED.get((transport, revision.name), revision)


# Out: from the newest vocabulary to a revision's.


def encode_result(revision: Revision, method: str, result: JSON) -> JSON:
    """A canonical ``result`` of ``method`` as ``revision`` spells it."""
    encoded: JSON = RESULTS.undo(revision.name, (method,), result)
    return encoded


def encode_error(revision: Revision, error: ProtocolError) -> JSON:
    """The ``error`` member of a response, as ``revision`` spells it."""
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
    """The whole message, or None if ``revision`` has no such notification."""
    if method not in revision.sends:
        return None
    params = NOTIFICATIONS.undo(revision.name, (method,), params)
    return {"jsonrpc": "2.0"} | _call(method, params)


def encode_request(revision: Revision, id: Id, method: str, params: JSON) -> JSON | None:
    """The whole message, or None if ``revision`` cannot put this question to the client.

    None also for every revision whose servers make no requests: see ``encode_input_requests``.
    """
    if revision.input_required or method not in revision.asks:
        return None
    encoded = REQUESTS.undo(revision.name, (method,), params, id)
    if encoded is None:
        return None
    return {"jsonrpc": "2.0", "id": id} | _call(method, encoded)


def encode_input_requests(revision: Revision, requests: Mapping[str, JSON]) -> JSON:
    """The ``inputRequests`` of a result that needs input: ``{key: {"method", "params"}}``."""
    if not revision.input_required:
        raise ValueError(f"{revision} asks by requests of its own.")
    return {key: _input_request(revision, key, **request) for key, request in requests.items()}


def _input_request(revision: Revision, key: str, method: str, params: JSON | None = None) -> JSON:
    if method not in revision.asks:
        raise ValueError(f"{revision} cannot ask {method}.")
    return _call(method, REQUESTS.undo(revision.name, (method,), params or {}, key))


def _call(method: str, params: JSON) -> JSON:
    return {"method": method, "params": params} if params else {"method": method}


# In: from a revision's vocabulary to the newest.


def decode_answer(revision: Revision, method: str, params: JSON, result: Any) -> JSON:
    """A client's ``result`` to the canonical question (``method``, ``params``), made canonical.

    An answer to sampling has its content as a list. Raises ``InvalidParams`` if the answer is not
    one to such a question; whether the values fit the form is for the asker to say.
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
