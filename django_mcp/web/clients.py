"""
The clients that people connect with: what each wants to be told, and where it keeps it.

Rule: what is said of a client stands in its own documentation, whose address stands
beside it. A token goes into a header, a variable or a file, never into an address; and
what is shown may be pasted as it is.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

PLACEHOLDER = "YOUR_TOKEN"
MAKE_TOKEN = "python manage.py mcp_token create --user NAME --name LABEL"
HINT = f"Put an access token in the place of {PLACEHOLDER}. This makes one: {MAKE_TOKEN}"
NAME = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}"
)  # what every client here takes as a server's name
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # token68 of RFC 9110, section 11.2
PLAIN = re.compile(r"[\w@+=:,./-]+", re.ASCII)  # no shell makes anything of these
SPACED = re.compile(r"[\w@+=:,./ -]+", re.ASCII)  # nor of these, in double quotes

Language = Literal["json", "toml", "sh", "text"]
Entry = dict[str, Any]


@dataclass(frozen=True)
class Snippet:
    """What to paste: ``text``, in a language, and ``where`` it goes.

    ``hint`` is empty, or says what is to be done to it before.
    """

    text: str
    language: Language
    where: str
    hint: str = ""


@dataclass(frozen=True)
class Place:
    """A path below the folder that a variable names, and otherwise below ``folder``."""

    rest: str
    folder: str = "~"
    variable: str = ""

    def path(self) -> Path:
        return Path(os.environ.get(self.variable) or os.path.expanduser(self.folder)) / self.rest


@dataclass(frozen=True)
class File:
    """A client's own configuration: servers by name, below the key ``root``.

    ``user`` has its place on a platform, as ``sys.platform`` names it, "" for the others;
    ``project`` is the path in a folder that people share, where the client has such a thing.
    """

    root: str
    http: Callable[[str, str | None], Entry]
    stdio: Callable[[Sequence[str]], Entry]
    user: Mapping[str, Place] = field(default_factory=dict)
    project: str | None = None
    language: Literal["json", "toml"] = "json"

    def path(self, folder: Path | None = None, platform: str = sys.platform) -> Path | None:
        """The file: that of ``folder``, or without one the user's own; None where there is none."""
        if folder is not None:
            return folder / self.project if self.project else None
        place = self.user.get(platform, self.user.get(""))
        return place.path() if place else None

    def text(self, name: str, entry: Entry) -> str:
        """``entry`` as the whole of such a file."""
        if self.language == "toml":
            return table(self.root, name, entry)
        return json.dumps({self.root: {name: entry}}, indent=2, ensure_ascii=False)


@dataclass(frozen=True)
class Client:
    """A program that speaks MCP.

    ``add`` and ``add_stdio`` are its own command for a new server, ``file`` is its configuration;
    what has neither is told by hand, with ``advice``.
    """

    key: str
    name: str
    source: str  # of what is said here
    where: str
    file: File | None = None
    add: Callable[[str, str, str | None], list[str]] | None = None
    add_stdio: Callable[[str, Sequence[str]], list[str]] | None = None
    link: Callable[[str, str, bool], str] | None = None
    advice: str = ""

    def snippet(self, name: str, *, url: str, token: str | None = None) -> Snippet:
        """What connects it to ``url``. Without a token there is a placeholder for one; where the
        token is empty, none is sent.

        Raises ``ValueError`` for a name or token that no client takes.
        """
        _check(name, token)
        if self.advice:
            return Snippet(self.advice.format(name=name, url=url), "text", self.where)
        hint, shown = (HINT, PLACEHOLDER) if token is None else ("", token)
        if self.add is not None:
            return Snippet(shell(self.add(name, url, shown)), "sh", self.where, hint)
        assert self.file is not None
        text = self.file.text(name, self.file.http(url, shown))
        return Snippet(text, self.file.language, self.where, hint)

    def stdio_snippet(self, name: str, command: Sequence[str]) -> Snippet | None:
        """What lets it start ``command`` and speak to that; None where it starts no programs."""
        _check(name)
        if self.add_stdio is not None:
            return Snippet(shell(self.add_stdio(name, command)), "sh", self.where)
        if self.file is None:
            return None
        text = self.file.text(name, self.file.stdio(command))
        return Snippet(text, self.file.language, self.where)

    def deep_link(self, name: str, url: str, *, asks_token: bool = False) -> str | None:
        """The link that opens it and adds the server; None where it has no such links.

        There is never a token in it: with ``asks_token`` the client asks the user for one, or
        keeps a place for it.
        """
        _check(name)
        return self.link(name, url, asks_token) if self.link else None


def client(key: str) -> Client:
    """The client called ``key``. Raises ``LookupError`` with those there are."""
    for one in CLIENTS:
        if one.key == key:
            return one
    known = ", ".join(one.key for one in CLIENTS)
    raise LookupError(f"There is no client {key!r} here; there are: {known}.")


def _check(name: str, token: str | None = None) -> None:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for a server: 1 to 64 letters, digits, _ and -.")
    if token and not TOKEN.fullmatch(token):
        raise ValueError("An access token is letters, digits and ._~+/- alone.")


def shell(command: Sequence[str]) -> str:
    """``command`` as a line to type: in a shell of this machine, and where it can be of any."""
    if all(PLAIN.fullmatch(part) or SPACED.fullmatch(part) for part in command):
        return " ".join(part if PLAIN.fullmatch(part) else f'"{part}"' for part in command)
    return subprocess.list2cmdline(command) if os.name == "nt" else shlex.join(command)


def table(root: str, name: str, entry: Entry) -> str:
    """A table of TOML. Strings of JSON are strings of TOML, where nothing is escaped by halves."""
    lines = (f"{key} = {_value(value)}" for key, value in entry.items())
    return "\n".join([f"[{root}.{name}]", *lines])


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(one)}" for key, one in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# What goes into configurations.


def bearer(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def remote(address: str = "url", headers: str = "headers", **more: str) -> Any:
    """Makes the entry of a server at a URL, whose keys clients name in various ways."""

    def entry(url: str, token: str | None) -> Entry:
        return {**more, address: url} | ({headers: bearer(token)} if token else {})

    return entry


def local(**more: str) -> Any:
    """Makes the entry of a server that the client starts."""

    def entry(command: Sequence[str]) -> Entry:
        return {**more, "command": command[0], "args": list(command[1:])}

    return entry


BRIDGED = "AUTH_HEADER"


def bridged(url: str, token: str | None) -> Entry:
    """For a client that starts servers alone: one that fetches what another says.

    https://github.com/geelen/mcp-remote: the header has no space, for what splits arguments.
    """
    entry: Entry = {"command": "npx", "args": ["-y", "mcp-remote", url]}
    if token:
        entry["args"] += ["--header", f"Authorization:${{{BRIDGED}}}"]
        entry["env"] = {BRIDGED: bearer(token)["Authorization"]}
    return entry


# Commands, and links that clients answer to.


def header(token: str | None) -> list[str]:
    return ["--header", f"Authorization: Bearer {token}"] if token else []


def claude_add(name: str, url: str, token: str | None) -> list[str]:
    return ["claude", "mcp", "add", "--transport", "http", name, url, *header(token)]


def claude_add_stdio(name: str, command: Sequence[str]) -> list[str]:
    return ["claude", "mcp", "add", name, "--", *command]


INSPECTOR = ("npx", "-y", "@modelcontextprotocol/inspector")


def inspect(name: str, url: str, token: str | None) -> list[str]:
    return [*INSPECTOR, "--server-url", url, "--transport", "http", *header(token)]


def inspect_stdio(name: str, command: Sequence[str]) -> list[str]:
    return [*INSPECTOR, *command]


def cursor_link(name: str, url: str, asks_token: bool) -> str:
    """https://cursor.com/docs/mcp/install-links: it shows the entry before it is taken."""
    entry = remote()(url, PLACEHOLDER if asks_token else None)
    config = base64.b64encode(json.dumps(entry).encode()).decode()
    asked = urlencode({"name": name, "config": config})
    return f"cursor://anysphere.cursor-deeplink/mcp/install?{asked}"


def vscode_link(name: str, url: str, asks_token: bool) -> str:
    """The "MCP URL handler" of VS Code's guide for developers; it asks for the inputs."""
    asked: Entry = {"name": name, "type": "http", "url": url}
    if asks_token:
        secret = f"{name}-token"
        told = {"type": "promptString", "description": f"Access token of {name}", "password": True}
        asked |= {"inputs": [{"id": secret} | told], "headers": bearer(f"${{input:{secret}}}")}
    return "vscode:mcp/install?" + quote(json.dumps(asked), safe="")


CHATGPT = """\
Settings, Apps, Advanced settings: switch on Developer mode. Then Apps, Create:
  Name            {name}
  MCP server URL  {url}
  Authentication  OAuth where people sign in at the site, else None
ChatGPT comes from the internet: it needs a public address, https://..., and cannot reach
localhost. It sends no access token of this kind: without OAuth it sees what is for everybody."""


def applications(folder: str, file: str) -> dict[str, Place]:
    """Where programs keep what is theirs, on each platform."""
    return {
        "darwin": Place(f"Library/Application Support/{folder}/{file}"),
        "win32": Place(f"{folder}/{file}", "~/AppData/Roaming", "APPDATA"),
        "": Place(f"{folder}/{file}", "~/.config", "XDG_CONFIG_HOME"),
    }


CLIENTS: tuple[Client, ...] = (
    Client(
        "claude-code",
        "Claude Code",
        "https://code.claude.com/docs/en/mcp",
        "In a terminal, in the folder where you work",
        # Its own file for all folders is its state as well: that one is left to its command.
        File("mcpServers", remote(type="http"), local(), project=".mcp.json"),
        add=claude_add,
        add_stdio=claude_add_stdio,
    ),
    Client(
        "claude-desktop",
        "Claude Desktop",
        "https://modelcontextprotocol.io/docs/develop/connect-local-servers",
        "claude_desktop_config.json (Settings, Developer, Edit Config); then start it again",
        File(
            "mcpServers",
            bridged,
            local(),
            applications("Claude", "claude_desktop_config.json"),
        ),
    ),
    Client(
        "cursor",
        "Cursor",
        "https://cursor.com/docs/mcp",
        "~/.cursor/mcp.json, or .cursor/mcp.json of a project",
        File("mcpServers", remote(), local(), {"": Place(".cursor/mcp.json")}, ".cursor/mcp.json"),
        link=cursor_link,
    ),
    Client(
        "vscode",
        "VS Code",
        "https://code.visualstudio.com/docs/copilot/reference/mcp-configuration",
        '.vscode/mcp.json of a folder, or "MCP: Open User Configuration"',
        File(
            "servers",
            remote(type="http"),
            local(type="stdio"),
            applications("Code/User", "mcp.json"),
            ".vscode/mcp.json",
        ),
        link=vscode_link,
    ),
    Client(
        "codex",
        "Codex",
        "https://developers.openai.com/codex/mcp",
        "~/.codex/config.toml, or .codex/config.toml of a project you trust",
        File(
            "mcp_servers",
            remote(headers="http_headers"),
            local(),
            {"": Place("config.toml", "~/.codex", "CODEX_HOME")},
            ".codex/config.toml",
            "toml",
        ),
    ),
    Client(
        "windsurf",
        "Windsurf",
        "https://docs.windsurf.com/windsurf/cascade/mcp",
        "~/.codeium/windsurf/mcp_config.json; then the refresh button of its MCP panel",
        File(
            "mcpServers",
            remote("serverUrl"),
            local(),
            {"": Place(".codeium/windsurf/mcp_config.json")},
        ),
    ),
    Client(
        "zed",
        "Zed",
        "https://zed.dev/docs/ai/mcp",
        "settings.json (zed: open settings), or .zed/settings.json of a project",
        File(
            "context_servers",
            remote(),
            local(source="custom"),
            applications("zed", "settings.json") | {"darwin": Place(".config/zed/settings.json")},
            ".zed/settings.json",
        ),
    ),
    Client(
        "chatgpt",
        "ChatGPT",
        "https://developers.openai.com/apps-sdk/deploy/connect-chatgpt",
        "In its settings",
        advice=CHATGPT,
    ),
    Client(
        "inspector",
        "MCP Inspector",
        "https://modelcontextprotocol.io/docs/tools/inspector",
        "In a terminal, with Node 22.19 or newer",
        add=inspect,
        add_stdio=inspect_stdio,
    ),
)
