"""
What a request says about itself in ``_meta``: everything, if its revision has no handshake.

The rule: every value is checked here, once, and refused as invalid params; whoever comes after
may rely on its type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .jsonrpc import ID, JSON, HeaderMismatch, Id, InvalidParams, UnsupportedVersion, is_id
from .revisions import LOG_LEVELS, REVISIONS, Revision

PREFIX = "io.modelcontextprotocol/"
VERSION = PREFIX + "protocolVersion"
CLIENT_INFO = PREFIX + "clientInfo"
CAPABILITIES = PREFIX + "clientCapabilities"
LOG_LEVEL = PREFIX + "logLevel"
SERVER_INFO = PREFIX + "serverInfo"
SUBSCRIPTION_ID = PREFIX + "subscriptionId"
# What only a client that speaks without a handshake says.
STATELESS_KEYS = frozenset((VERSION, CLIENT_INFO, CAPABILITIES, LOG_LEVEL))


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a request without a handshake says about itself."""

    revision: Revision
    client_info: JSON = field(default_factory=dict)
    capabilities: JSON = field(default_factory=dict)
    log_level: str | None = None
    input_responses: JSON | None = None
    request_state: str | None = None


def read_meta(params: JSON) -> JSON:
    """The request's ``_meta``, an empty one if it has none; its progress token is an id."""
    meta: JSON = expect(params.get("_meta", {}), dict, "_meta")
    token = meta.get("progressToken")
    if token is not None and not is_id(token):
        raise InvalidParams(f"progressToken must be {ID}")
    return meta


def read_envelope(
    meta: JSON,
    params: JSON,
    header_revision: str | None = None,
    check: Callable[[str], None] | None = None,
) -> Envelope:
    """What the request says about itself; raises ``ProtocolError``.

    In this order: what is missing or malformed, what contradicts the header, or any header in the
    eyes of ``check``, and a revision that is not served, or not without a handshake.
    """
    if header_revision is not None and header_revision not in REVISIONS and VERSION not in meta:
        raise UnsupportedVersion(header_revision[:100])  # all that is said of a version
    for key in (VERSION, CAPABILITIES):
        if key not in meta:
            raise InvalidParams(f"_meta must have {key}")
    version = expect(meta[VERSION], str, VERSION)
    about = _read_about(meta) | _read_retry(params)
    if header_revision is not None and header_revision != version:
        raise HeaderMismatch("MCP-Protocol-Version differs from the body's protocol version")
    if check is not None:
        check(version)
    revision = REVISIONS.get(version)
    if revision is None or revision.handshake:
        raise UnsupportedVersion(version)
    return Envelope(revision, **about)


def _read_about(meta: JSON) -> dict[str, Any]:
    level = meta.get(LOG_LEVEL)
    if level is not None and level not in LOG_LEVELS:
        raise InvalidParams(f"{LOG_LEVEL} must be one of {', '.join(LOG_LEVELS)}")
    info = read_client_info(meta[CLIENT_INFO]) if CLIENT_INFO in meta else {}
    capabilities = read_capabilities(meta[CAPABILITIES])
    return {"client_info": info, "capabilities": capabilities, "log_level": level}


def _read_retry(params: JSON) -> dict[str, Any]:
    """What a client brings along when it tries again, having been asked something."""
    if "inputResponses" not in params and "requestState" not in params:
        return {}
    responses = expect(params.get("inputResponses"), dict | None, "inputResponses")
    for key, response in (responses or {}).items():
        expect(response, dict, f"inputResponses[{key!r}]")
    state = expect(params.get("requestState"), str | None, "requestState")
    return {"input_responses": responses, "request_state": state}


def read_client_info(value: Any) -> JSON:
    """The client's name and version, and what else it says of itself."""
    info: JSON = expect(value, dict, "clientInfo")
    for key in ("name", "version"):
        expect(info.get(key), str, f"clientInfo.{key}")
    return info


def read_capabilities(value: Any) -> JSON:
    """The client's capabilities, objects by name. One that is null is not there."""
    capabilities: JSON = expect(value, dict, "capabilities")
    for name, capability in capabilities.items():
        expect(capability, dict | None, f"capabilities.{name}")
    return {name: item for name, item in capabilities.items() if item is not None}


_NAMES = {dict: "an object", str: "a string", dict | None: "an object", str | None: "a string"}


def expect(value: Any, type_: Any, name: str) -> Any:
    """``value``, if it is of that type; raises ``InvalidParams`` by its name."""
    if not isinstance(value, type_):
        raise InvalidParams(f"{name} must be {_NAMES[type_]}")
    return value


def progress_token(meta: JSON) -> Id | None:
    """The token under which the client wants to hear of progress."""
    token: Id | None = meta.get("progressToken")
    return token
