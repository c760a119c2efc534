"""The lines that connect a client to the example project, with this machine's own paths.

The rule: what is printed can be pasted as it is; every path is absolute.
"""

import os
from pathlib import Path

from django_mcp.web.clients import ClientProgram, Snippet, client

NAME = "atlas"
# Claude Desktop starts servers by itself, and needs nothing else that is installed for that.
OVER_HTTP = ("claude-code", "cursor", "vscode", "inspector")  # and sign in
OVER_STDIO = ("claude-code", "claude-desktop", "cursor", "vscode", "inspector")


def over_http(url: str) -> str:
    """What to paste where, for each client that signs in: there is no token in it."""
    told = [(one, one.snippet(NAME, url=url, token="")) for one in map(client, OVER_HTTP)]
    return "\n\n".join(shown(one, snippet) for one, snippet in told)


def over_stdio(command: list[str], user: str) -> str:
    """What to paste where, for clients that start a server themselves, as `user`."""
    told = [shown(one, local(one, command)) for one in map(client, OVER_STDIO)]
    heading = f"Connect your own client, as {user} (or put another user's name there):"
    return "\n\n".join([heading, *told])


def local(one: ClientProgram, command: list[str]) -> Snippet:
    found = one.stdio_snippet(NAME, command)
    assert found is not None, f"{one.name} starts no programs"
    return found


def shown(one: ClientProgram, snippet: Snippet) -> str:
    lines = "\n".join(f"  {line}" for line in snippet.text.splitlines())
    return f"{one.name}. {snippet.where}:\n\n{lines}"


def stdio(python: str, manage: Path, user: str) -> list[str]:
    """The command that serves over stdio, from whatever folder it is started."""
    return [os.path.abspath(python), str(manage.resolve()), "mcp_stdio", "--user", user]
