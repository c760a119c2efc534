"""
The ``_meta`` of a request: version, client info and capabilities if there is no handshake.

Every value is checked here once, and a wrong one raises ``InvalidParams``. All other code can rely
on the types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .jsonrpc import ID, JSON, HeaderMismatch, Id, InvalidParams, UnsupportedVersion, is_id
from .revisions import LATEST, LOG_LEVELS, REVISIONS, Revision

PREFIX = "io.modelcontextprotocol/"
VERSION = PREFIX + "protocolVersion"
CLIENT_INFO = PREFIX + "clientInfo"
CAPABILITIES = PREFIX + "clientCapabilities"
LOG_LEVEL = PREFIX + "logLevel"
SERVER_INFO = PREFIX + "serverInfo"
SUBSCRIPTION_ID = PREFIX + "subscriptionId"
# Only requests without a handshake have these keys.
STATELESS_KEYS = frozenset((VERSION, CLIENT_INFO, CAPABILITIES, LOG_LEVEL))


@dataclass(frozen=True, slots=True)
class Envelope:
    """The protocol fields of a request without a handshake, from its ``_meta`` and params."""

    revision: Revision
    client_info: JSON = field(default_factory=dict)
    capabilities: JSON = field(default_factory=dict)
    log_level: str | None = None
    input_responses: JSON | None = None
    request_state: str | None = None


def read_meta(params: JSON) -> JSON:
    """Return the request's ``_meta`` or {}. Raise ``InvalidParams``, also for a progress token."""
    meta: JSON = expect(params.get("_meta", {}), dict, "_meta")
    token = meta.get("progressToken")
    if token is not None and not is_id(token):
        raise InvalidParams(f"progressToken must be {ID}")
    return meta


def named_revision(params: JSON, header: str | None = None) -> Revision:
    """Return the revision that a request without a handshake names, in ``_meta`` or ``header``.

    If it names none, return the newest; ``read_envelope`` then reports what is missing. Raise
    ``HeaderMismatch`` if the two differ, and ``UnsupportedVersion``.
    """
    meta = params.get("_meta")
    version = meta.get(VERSION) if isinstance(meta, dict) else None
    named = version if isinstance(version, str) else header
    if named is None:
        return LATEST
    if header is not None and header != named:
        raise HeaderMismatch("MCP-Protocol-Version differs from the body's protocol version")
    revision = REVISIONS.get(named)
    if revision is None or revision.handshake:
        raise UnsupportedVersion(named[:100])
    return revision


def read_envelope(
    meta: JSON,
    params: JSON,
    revision: Revision = LATEST,
    check: Callable[[str], None] | None = None,
) -> Envelope:
    """Return the protocol fields of a request without a handshake. Raise ``ProtocolError``.

    Missing or malformed fields are reported first. Then ``check``, called with the version of the
    body, compares the headers and may raise.
    """
    for key in (VERSION, CAPABILITIES):
        if key not in meta:
            raise InvalidParams(f"_meta must have {key}")
    version = expect(meta[VERSION], str, VERSION)
    about = _read_about(meta) | _read_retry(params)
    if check is not None:
        check(version)
    return Envelope(revision, **about)


def _read_about(meta: JSON) -> dict[str, Any]:
    level = meta.get(LOG_LEVEL)
    if level is not None and level not in LOG_LEVELS:
        raise InvalidParams(f"{LOG_LEVEL} must be one of {', '.join(LOG_LEVELS)}")
    info = read_client_info(meta[CLIENT_INFO]) if CLIENT_INFO in meta else {}
    capabilities = read_capabilities(meta[CAPABILITIES])
    return {"client_info": info, "capabilities": capabilities, "log_level": level}


def _read_retry(params: JSON) -> dict[str, Any]:
    """Return the answers and the state that a client sends with a retry after a question."""
    if "inputResponses" not in params and "requestState" not in params:
        return {}
    responses = expect(params.get("inputResponses"), dict | None, "inputResponses")
    for key, response in (responses or {}).items():
        expect(response, dict, f"inputResponses[{key!r}]")
    state = expect(params.get("requestState"), str | None, "requestState")
    return {"input_responses": responses, "request_state": state}


def read_client_info(value: Any) -> JSON:
    """Return ``clientInfo``. Raise ``InvalidParams`` if its name or version is missing."""
    info: JSON = expect(value, dict, "clientInfo")
    for key in ("name", "version"):
        expect(info.get(key), str, f"clientInfo.{key}")
    return info


def read_capabilities(value: Any) -> JSON:
    """Return the client's capabilities, objects by name, without those that are null."""
    capabilities: JSON = expect(value, dict, "capabilities")
    for name, capability in capabilities.items():
        expect(capability, dict | None, f"capabilities.{name}")
    return {name: item for name, item in capabilities.items() if item is not None}


_NAMES = {dict: "an object", str: "a string", dict | None: "an object", str | None: "a string"}


def expect(value: Any, type_: Any, name: str) -> Any:
    """Return ``value`` if it is of that type, else raise ``InvalidParams`` with its name."""
    if not isinstance(value, type_):
        raise InvalidParams(f"{name} must be {_NAMES[type_]}")
    return value


def progress_token(meta: JSON) -> Id | None:
    """Return the token for progress notifications; None if the client wants none."""
    token: Id | None = meta.get("progressToken")
    return token
