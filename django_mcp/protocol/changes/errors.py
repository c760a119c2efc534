"""
The way back for errors: the ``error`` member of a response, given the exception it is made of.

The rule: a code that a revision does not define never reaches it; it says the same with one of
JSON-RPC's own.
"""

from __future__ import annotations

from django_mcp.protocol.errors import (
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
from .shapes import JSON, without

ERRORS = Changelog()
introduced_in = ERRORS.introduced_in


@introduced_in("2026-07-28", ResourceNotFound)
def not_found_is_invalid(error: JSON, cause: ResourceNotFound) -> JSON:
    """An unknown resource is an invalid parameter; it had a code of its own."""
    return error | {"code": RESOURCE_NOT_FOUND}


@introduced_in("2026-07-28", UnsupportedVersion)
def unsupported_version(error: JSON, cause: UnsupportedVersion) -> JSON:
    """An unsupported version has a code; it was an invalid parameter."""
    return error | {"code": INVALID_PARAMS}


@introduced_in("2026-07-28", MissingCapability)
def missing_capability(error: JSON, cause: MissingCapability) -> JSON:
    """A capability that the client did not declare has a code."""
    return error | {"code": INVALID_REQUEST}


@introduced_in("2026-07-28", HeaderMismatch)
def header_mismatch(error: JSON, cause: HeaderMismatch) -> JSON:
    """Headers that contradict the body have a code."""
    return error | {"code": INVALID_REQUEST}


@introduced_in("2026-07-28", UrlElicitationRequired)
def no_url_error(error: JSON, cause: UrlElicitationRequired) -> JSON:
    """Input is asked for by results; pages to be visited first were named by an error."""
    data = {"elicitations": cause.elicitations}
    return error | {"code": URL_ELICITATION_REQUIRED, "data": data}


@introduced_in("2025-11-25", UrlElicitationRequired)
def url_mode(error: JSON, cause: UrlElicitationRequired) -> JSON:
    """The client may be sent to a page before a request can be served."""
    return without(error, "data") | {"code": INVALID_REQUEST}
