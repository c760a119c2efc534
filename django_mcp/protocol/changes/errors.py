"""Changes to errors, and to the parameters of notifications that the server sends.

``ERRORS`` converts the ``error`` member of a response, given its exception. A revision never gets
an error code that it does not define, but one of JSON-RPC instead.

``NOTIFICATIONS`` converts parameters. ``Revision.sends`` lists the notifications of a revision.
"""

from __future__ import annotations

from django_mcp.protocol.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    RESOURCE_NOT_FOUND,
    URL_ELICITATION_REQUIRED,
    HeaderMismatch,
    MissingCapability,
    ResourceNotFound,
    UnsupportedVersion,
    UrlElicitationRequired,
)

from . import Changelog
from .schemas import JSON, meta_without, without

NOTIFICATIONS = Changelog()
notifications_introduced_in = NOTIFICATIONS.introduced_in


@notifications_introduced_in("2026-07-28")
def subscription_id(params: JSON) -> JSON:
    """Notifications of a subscription contain its id."""
    return meta_without(params, "io.modelcontextprotocol/subscriptionId")


@notifications_introduced_in(
    "2025-11-25",
    "notifications/cancelled",
    "notifications/message",
    "notifications/progress",
    "notifications/resources/updated",
)
def metadata(params: JSON) -> JSON:
    """The parameters of all notifications carry metadata."""
    return without(params, "_meta")


@notifications_introduced_in("2025-03-26", "notifications/progress")
def progress_message(params: JSON) -> JSON:
    """Progress notifications have a message."""
    return without(params, "message")


ERRORS = Changelog()
introduced_in = ERRORS.introduced_in


@introduced_in("2026-07-28", ResourceNotFound)
def not_found_is_invalid(error: JSON, cause: ResourceNotFound) -> JSON:
    """An unknown resource is an invalid parameter; before, it had its own error code."""
    return error | {"code": RESOURCE_NOT_FOUND}


@introduced_in("2026-07-28", UnsupportedVersion)
def unsupported_version(error: JSON, cause: UnsupportedVersion) -> JSON:
    """An unsupported version has its own error code; before, it was an invalid parameter."""
    return error | {"code": INVALID_PARAMS}


@introduced_in("2026-07-28", MissingCapability)
def missing_capability(error: JSON, cause: MissingCapability) -> JSON:
    """A capability that the client did not declare has its own error code."""
    return error | {"code": INVALID_REQUEST}


@introduced_in("2026-07-28", HeaderMismatch)
def header_mismatch(error: JSON, cause: HeaderMismatch) -> JSON:
    """Headers that differ from the body have their own error code."""
    return error | {"code": INVALID_REQUEST}


@introduced_in("2026-07-28", UrlElicitationRequired)
def no_url_error(error: JSON, cause: UrlElicitationRequired) -> JSON:
    """Servers ask for input by results; before, an error listed the pages to visit first."""
    data = {"elicitations": cause.elicitations}
    return error | {"code": URL_ELICITATION_REQUIRED, "data": data}


@introduced_in("2025-11-25", UrlElicitationRequired)
def url_mode(error: JSON, cause: UrlElicitationRequired) -> JSON:
    """An error may name pages that the user has to visit before the request can succeed."""
    return without(error, "data") | {"code": INVALID_REQUEST}
