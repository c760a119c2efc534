"""
Events: the parsed messages of a client, as ``Connection.receive`` returns them.

Events are plain values. They can be stored, compared and sent to another process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .jsonrpc import JSON, Id
from .revisions import Revision


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A request of the client, or its retry with answers to the server's questions.

    ``params`` are only the method's own. ``_meta`` and the members of a retry have fields here.
    """

    id: Id
    method: str
    params: JSON
    revision: Revision
    client_info: JSON = field(default_factory=dict)
    capabilities: JSON = field(default_factory=dict)
    log_level: str | None = None  # of this request's ``_meta``; None if not given
    progress_token: Id | None = None
    input_responses: JSON | None = None
    request_state: str | None = None
    meta: JSON = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification of the client that has no event class of its own."""

    method: str
    params: JSON


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The client has cancelled the call with that id."""

    id: Id
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The client's response to a request of the server, with a result or an error."""

    id: Id
    result: JSON | None = None
    error: JSON | None = None


Event = ClientCall | Notice | Cancelled | Answered
