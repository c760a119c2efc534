"""The lines that connect a client to the example project, with this machine's own paths.

The rule: what is printed can be pasted as it is; every path is absolute.
"""

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

NAME = "atlas"
PUBLIC_ALONE = """\
ChatGPT connects from the internet, so it cannot reach an address of this machine: it needs a public
one, https://..., in front of this server. It sends no token of this kind, so it would see what is
for everybody."""


def over_http(url: str, token: str, command: list[str]) -> str:
    """What to paste where, for each client; `command` is for one that starts servers itself."""
    entry: dict[str, Any] = {"url": url, "headers": {"Authorization": f"Bearer {token}"}}
    header = shell(["--header", f"Authorization: Bearer {token}"])
    inspector = f"npx @modelcontextprotocol/inspector --server-url {url} --transport http"
    return "\n\n".join(
        [
            f"Claude Code\n\n  claude mcp add --transport http {NAME} {url} {header}",
            f"Claude Desktop starts it by itself: {DESKTOP}\n\n{local('mcpServers', command)}",
            f"Cursor: {CURSOR}\n\n{configuration('mcpServers', entry)}",
            f"VS Code: {VS_CODE}\n\n{configuration('servers', {'type': 'http'} | entry)}",
            PUBLIC_ALONE,
            f"MCP Inspector, with Node 22.19 or newer\n\n  {inspector} {header}",
        ]
    )


def over_stdio(command: list[str], user: str) -> str:
    """What to paste where, for clients that start a server themselves, as `user`."""
    return "\n\n".join(
        [
            f"Connect your own client, as {user} (or put another user's name there):",
            f"Claude Code\n\n  claude mcp add {NAME} -- {shell(command)}",
            f"Claude Desktop: {DESKTOP}\n\n{local('mcpServers', command)}",
            f"Cursor: {CURSOR}\n\n{local('mcpServers', command)}",
            f"VS Code: {VS_CODE}\n\n{local('servers', command, type='stdio')}",
            f"MCP Inspector, with Node 22.19 or newer\n\n"
            f"  npx @modelcontextprotocol/inspector {shell(command)}",
        ]
    )


DESKTOP = "claude_desktop_config.json (Settings, Developer, Edit Config)"
CURSOR = "~/.cursor/mcp.json, or .cursor/mcp.json of a project"
VS_CODE = ".vscode/mcp.json of a folder"


def stdio(python: str, manage: Path, user: str) -> list[str]:
    """The command that serves over stdio, from whatever folder it is started."""
    return [os.path.abspath(python), str(manage.resolve()), "mcp_stdio", "--user", user]


def local(key: str, command: list[str], **more: str) -> str:
    return configuration(key, {**more, "command": command[0], "args": command[1:]})


def configuration(key: str, entry: dict[str, Any]) -> str:
    text = json.dumps({key: {NAME: entry}}, indent=2, ensure_ascii=False)
    return "\n".join(f"  {line}" for line in text.splitlines())


def shell(command: list[str]) -> str:
    return subprocess.list2cmdline(command) if os.name == "nt" else shlex.join(command)
