"""The lines that connect a client to the example project, with this machine's own paths.

The rule: what is printed can be pasted as it is; every path is absolute.
"""

import json
import os
import shlex
import subprocess
from pathlib import Path

NAME = "atlas"


def instructions(python: str, manage: Path, user: str) -> str:
    """What to paste where, for each client, to speak with the atlas as `user`."""
    command = [os.path.abspath(python), str(manage.resolve()), "mcp_stdio", "--user", user]
    return "\n\n".join(
        [
            f"Connect your own client, as {user} (or put another user's name there):",
            f"Claude Code\n\n  claude mcp add {NAME} -- {shell(command)}",
            f"Claude Desktop: claude_desktop_config.json (Settings, Developer, Edit Config)\n\n"
            f"{configuration('mcpServers', command)}",
            f"Cursor: ~/.cursor/mcp.json, or .cursor/mcp.json of a project\n\n"
            f"{configuration('mcpServers', command)}",
            f"VS Code: .vscode/mcp.json of a folder\n\n"
            f"{configuration('servers', command, type='stdio')}",
        ]
    )


def configuration(key: str, command: list[str], **more: str) -> str:
    entry = more | {"command": command[0], "args": command[1:]}
    text = json.dumps({key: {NAME: entry}}, indent=2, ensure_ascii=False)
    return "\n".join(f"  {line}" for line in text.splitlines())


def shell(command: list[str]) -> str:
    return subprocess.list2cmdline(command) if os.name == "nt" else shlex.join(command)
