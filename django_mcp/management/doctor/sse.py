"""
HTTP+SSE, where a server has it: whether the address that its stream names leads back to it.

Rule: whoever has it off is told nothing, and the session that was opened is ended.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...protocol import http
from .findings import Finding, Findings, ok, problem
from .messages import request, typed
from .wire import Answer, Unreachable

if TYPE_CHECKING:
    from .live import Visit

ADDRESS = re.compile(rb"\Aevent: endpoint\r?\n(?:.*\r?\n)*?data: (/[!-~]*)\r?\n")
ASTRAY = (
    "Let the proxy pass on the path and the query as they are; a path that it takes away must be "
    "said: FORCE_SCRIPT_NAME, or the root path of the ASGI server."
)


def older(visit: Visit) -> Findings:
    """What a client meets that knows the first revision alone."""
    try:
        answer = visit.wire.ask("GET", visit.with_token({"Accept": http.SSE_TYPE}, {}), first=True)
    except Unreachable:
        return  # what keeps streams back was told of those of sessions
    if answer.status == 200 and answer.kind == http.SSE_TYPE:
        yield _named(visit, answer)


def _named(visit: Visit, answer: Answer) -> Finding:
    named = ADDRESS.match(answer.body)
    if named is None:
        return problem("A stream of HTTP+SSE does not begin with an address to post to.", ASTRAY)
    address = named[1].decode("ascii")
    path = address.partition("?")[0]
    posted = visit.wire.ask("POST", visit.with_token(typed(), {}), request("ping"), path=address)
    visit.wire.ask("DELETE", visit.with_token({}, {}), path=address)
    if posted.status == 202:
        return ok(f"HTTP+SSE is on, for clients that know nothing newer; they post to {path}.")
    words = f"HTTP+SSE names {path} to post to, which is answered by {posted.status}."
    return problem(words, ASTRAY)
