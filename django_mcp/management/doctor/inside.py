"""
The server without any network: what it declares, asked in this process and over stdio.

Rule: each revision is asked by the way that clients go, and stdio by a process like the
one that clients start.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from ...declare.addresses import sse_address
from ...declare.servers import Server
from ...exceptions import Misdeclared
from ...protocol.revisions import REVISIONS
from ..own_command import own_command
from .findings import Findings, note, ok, problem
from .messages import INITIALIZE, counted, message, request

SECONDS = 60


def declared(server: Server, user: Any) -> Findings:
    """A list of the tools, in every revision."""
    from ...testing import Client

    try:
        server.ready()
    except Misdeclared as error:
        yield problem(f"The server {server.name!r} cannot be served: {error}", "manage.py check")
        return
    if server.is_empty:
        yield note(f"The server {server.name!r} declares nothing.", "manage.py startmcp APP")
        return
    counts = {}
    for revision in REVISIONS:
        with Client(user, server=server, revision=revision) as client:
            counts[revision] = len(client.tools())
    who = user.get_username() if user is not None else "whoever shows no token"
    number = max(counts.values())
    yield ok(f"{', '.join(counts)} are spoken; {who} is shown {counted(number)}.")
    if old := sse_address(server):
        yield note(f"HTTP+SSE is on: clients that can do nothing else take {old}.")


def stdio(server: Server, user: str | None) -> Findings:
    """A handshake with ``mcp_stdio``, and nothing on its stdout but that."""
    asked = [INITIALIZE, request("notifications/initialized", id=None), request("ping", id=2)]
    command = own_command(user, server)
    try:
        done = subprocess.run(
            command, input=b"\n".join([*asked, b""]), capture_output=True, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield problem(f"mcp_stdio does not end: {type(error).__name__}", " ".join(command))
        return
    answers = [message(line) for line in done.stdout.splitlines()]
    if [answer.get("id") for answer in answers] == [1, 2] and not done.returncode:
        yield ok("mcp_stdio starts, answers and ends.")
        return
    said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
    strange = [line for line in done.stdout.splitlines() if not message(line)][:1]
    told = strange[0].decode(errors="replace") if strange else (said or ["nothing"])[0]
    yield problem(
        f"mcp_stdio does not answer as it should (exit code {done.returncode}): {told[:200]}",
        "What is printed while the project starts is no MCP. Try: " + json.dumps(command),
    )
