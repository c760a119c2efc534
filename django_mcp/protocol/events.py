"""
What arriving messages mean to the server, once understood.

The rule: values only. An event can be kept, compared and sent to another process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .jsonrpc import JSON, Id
from .revisions import Revision


@dataclass(frozen=True, slots=True)
class Call:
    """The client asks for something, perhaps again, with answers that it owed.

    ``params`` are the method's own: ``_meta`` and what belongs to a retry have fields here.
    """

    id: Id
    method: str
    params: JSON
    revision: Revision
    client_info: JSON = field(default_factory=dict)
    capabilities: JSON = field(default_factory=dict)
    log_level: str | None = None  # said by this request; None: it said nothing
    progress_token: Id | None = None
    input_responses: JSON | None = None
    request_state: str | None = None
    meta: JSON = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notice:
    """The client says something that needs no answer."""

    method: str
    params: JSON


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The client no longer wants an answer to the call of that id."""

    id: Id
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The client replies to a request of ours, by a result or by an error."""

    id: Id
    result: JSON | None = None
    error: JSON | None = None


Event = Call | Notice | Cancelled | Answered
