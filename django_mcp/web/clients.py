"""How to connect well-known MCP clients: configuration snippets, commands and deep links.

``CLIENTS`` describes each client as its own documentation does; ``source`` is the URL of that
documentation. A token goes into a header, an environment variable or a file, never into a URL.
Snippets are escaped so that they can be pasted unchanged. ``connection_methods`` makes the list for
the page, with a placeholder instead of a token.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlencode

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..auth.principal import ChallengingVerifier, verifiers

if TYPE_CHECKING:
    from django.utils.functional import Promise

    from ..declarations.server import Server

PLACEHOLDER = "YOUR_TOKEN"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")  # server names that every client accepts
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # token68 of RFC 9110, section 11.2
PLAIN = re.compile(r"[\w@+=:,./-]+", re.ASCII)  # characters that need no quotes
SPACED = re.compile(r"[\w@+=:,./ -]+", re.ASCII)  # characters that are safe in double quotes

Language = Literal["json", "toml", "sh", "text"]
Entry = dict[str, Any]


@dataclass(frozen=True)
class Snippet:
    """A text to paste, its language, and ``where`` to paste it, in words."""

    text: str
    language: Language
    where: str


@dataclass(frozen=True)
class ConfigPath:
    """The path ``rest`` below a base folder.

    The base folder is the value of an environment variable, or else ``folder``.
    """

    rest: str
    folder: str = "~"
    variable: str = ""

    def path(self) -> Path:
        return Path(os.environ.get(self.variable) or os.path.expanduser(self.folder)) / self.rest


@dataclass(frozen=True)
class ConfigFile:
    """A client's configuration file: servers by name, below the key ``root``.

    ``http`` and ``stdio`` make the entry of a server. ``user`` maps values of ``sys.platform`` to
    the place of the user's file; "" is for all other platforms. ``project`` is the path within a
    project's folder, or None if the client has no file there.
    """

    root: str
    http: Callable[[str, str | None], Entry]
    stdio: Callable[[Sequence[str]], Entry]
    user: Mapping[str, ConfigPath] = field(default_factory=dict)
    project: str | None = None
    language: Literal["json", "toml"] = "json"

    def path(self, folder: Path | None = None, platform: str = sys.platform) -> Path | None:
        """Return the path of the file of a project's ``folder``, or else of the user's file.

        None if the client has no such file.
        """
        if folder is not None:
            return folder / self.project if self.project else None
        place = self.user.get(platform, self.user.get(""))
        return place.path() if place else None

    def text(self, name: str, entry: Entry) -> str:
        """Return the content of a file that has only this entry."""
        if self.language == "toml":
            return table(self.root, name, entry)
        return json.dumps({self.root: {name: entry}}, indent=2, ensure_ascii=False)


@dataclass(frozen=True)
class ClientProgram:
    """A program that speaks MCP, and how to add a server to it. ``where`` tells where to paste it.

    ``add`` and ``add_stdio`` return the client's own command for that, ``file`` is its
    configuration file, and ``link`` returns a deep link. ``advice`` is text for clients that have
    neither a command nor a file.
    """

    key: str
    name: str
    source: str  # URL of the documentation that this follows
    where: str | Promise
    file: ConfigFile | None = None
    add: Callable[[str, str, str | None], list[str]] | None = None
    add_stdio: Callable[[str, Sequence[str]], list[str]] | None = None
    link: Callable[[str, str, bool], str] | None = None
    advice: str | Promise = ""

    def snippet(self, name: str, *, url: str, token: str | None = None) -> Snippet:
        """Return the snippet that connects the client to the server at ``url``.

        If ``token`` is None, the snippet has a placeholder. If it is empty, the client sends no
        token. Raise ``ValueError`` for an invalid name or token.
        """
        _check(name, token)
        if self.advice:
            return Snippet(str(self.advice).format(name=name, url=url), "text", str(self.where))
        shown = PLACEHOLDER if token is None else token
        if self.add is not None:
            return Snippet(shell(self.add(name, url, shown)), "sh", str(self.where))
        assert self.file is not None
        text = self.file.text(name, self.file.http(url, shown))
        return Snippet(text, self.file.language, str(self.where))

    def stdio_snippet(self, name: str, command: Sequence[str]) -> Snippet | None:
        """Return the snippet for a server that the client starts with ``command``.

        None if the client cannot start programs. Raise ``ValueError`` for an invalid name.
        """
        _check(name)
        if self.add_stdio is not None:
            return Snippet(shell(self.add_stdio(name, command)), "sh", str(self.where))
        if self.file is None:
            return None
        text = self.file.text(name, self.file.stdio(command))
        return Snippet(text, self.file.language, str(self.where))

    def deep_link(self, name: str, url: str, *, asks_token: bool = False) -> str | None:
        """Return the link that opens the client and adds the server; None if it has no such links.

        The link never contains a token. With ``asks_token`` the client asks the user for one, or
        the entry has a placeholder.
        """
        _check(name)
        return self.link(name, url, asks_token) if self.link else None


def client(key: str) -> ClientProgram:
    """Return the client with that key. Raise ``LookupError``, which lists the known keys."""
    for program in CLIENTS:
        if program.key == key:
            return program
    known = ", ".join(program.key for program in CLIENTS)
    raise LookupError(f"Unknown client {key!r}. Known clients: {known}.")


def _check(name: str, token: str | None = None) -> None:
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid server name: use 1 to 64 letters, digits, _ and -, "
            "and do not start with -."
        )
    if token and not TOKEN.fullmatch(token):
        raise ValueError("An access token may contain only letters, digits and ._~+/-.")


def shell(command: Sequence[str]) -> str:
    """Return ``command`` as a line for a shell.

    Without special characters the line works in every shell. Otherwise it is quoted for the shell
    of the platform that this process runs on.
    """
    if all(PLAIN.fullmatch(part) or SPACED.fullmatch(part) for part in command):
        return " ".join(part if PLAIN.fullmatch(part) else f'"{part}"' for part in command)
    return subprocess.list2cmdline(command) if os.name == "nt" else shlex.join(command)


def table(root: str, name: str, entry: Entry) -> str:
    """Return a TOML table. Its strings are JSON, which is valid TOML as ``_value`` writes it."""
    lines = (f"{key} = {_value(value)}" for key, value in entry.items())
    return "\n".join([f"[{root}.{name}]", *lines])


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(one)}" for key, one in value.items()) + " }"
    # TOML allows no surrogate pairs, so other characters are not escaped, and no unescaped DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# Entries of configuration files.


def bearer(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def remote(address: str = "url", headers: str = "headers", **more: str) -> Any:
    """Return a function that makes the entry of a server at a URL.

    ``address`` and ``headers`` are the client's names of these keys.
    """

    def entry(url: str, token: str | None) -> Entry:
        return {**more, address: url} | ({headers: bearer(token)} if token else {})

    return entry


def local(**more: str) -> Any:
    """Return a function that makes the entry of a server that the client starts."""

    def entry(command: Sequence[str]) -> Entry:
        return {**more, "command": command[0], "args": list(command[1:])}

    return entry


AUTH_VARIABLE = "AUTH_HEADER"


def mcp_remote_entry(url: str, token: str | None) -> Entry:
    """Return an entry for a client that only starts programs: ``mcp-remote``, a stdio proxy.

    https://github.com/geelen/mcp-remote: the argument has no space, because some clients split
    arguments at spaces.
    """
    entry: Entry = {"command": "npx", "args": ["-y", "mcp-remote", url]}
    if token:
        entry["args"] += ["--header", f"Authorization:${{{AUTH_VARIABLE}}}"]
        entry["env"] = {AUTH_VARIABLE: bearer(token)["Authorization"]}
    return entry


# Commands and deep links of clients.


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
    """https://cursor.com/docs/mcp/install-links: Cursor shows the entry before it adds it."""
    entry = remote()(url, PLACEHOLDER if asks_token else None)
    config = base64.b64encode(json.dumps(entry).encode()).decode()
    query = urlencode({"name": name, "config": config})
    return f"cursor://anysphere.cursor-deeplink/mcp/install?{query}"


def vscode_link(name: str, url: str, asks_token: bool) -> str:
    """The "MCP URL handler" of VS Code's guide for developers; VS Code asks for the inputs."""
    config: Entry = {"name": name, "type": "http", "url": url}
    if asks_token:
        id = f"{name}-token"
        description = gettext("Access token of %(name)s") % {"name": name}
        token_input = {
            "id": id, "type": "promptString", "description": description, "password": True,
        }  # fmt: skip
        config |= {"inputs": [token_input], "headers": bearer(f"${{input:{id}}}")}
    return "vscode:mcp/install?" + quote(json.dumps(config), safe="")


CHATGPT = _("""\
Settings, Apps, Advanced settings: switch on Developer mode. Then Apps, Create:
  Name            {name}
  MCP server URL  {url}
  Authentication  OAuth if users sign in at the site, otherwise None
ChatGPT connects from the internet, so the server needs a public https:// address. ChatGPT cannot
send a personal access token. Without OAuth it can use only what is public.""")


def user_config_paths(folder: str, file: str) -> dict[str, ConfigPath]:
    """Return the usual place of a program's configuration file on each platform."""
    return {
        "darwin": ConfigPath(f"Library/Application Support/{folder}/{file}"),
        "win32": ConfigPath(f"{folder}/{file}", "~/AppData/Roaming", "APPDATA"),
        "": ConfigPath(f"{folder}/{file}", "~/.config", "XDG_CONFIG_HOME"),
    }


CLIENTS: tuple[ClientProgram, ...] = (
    ClientProgram(
        "claude-code",
        "Claude Code",
        "https://code.claude.com/docs/en/mcp",
        _("In a terminal, in the folder where you work"),
        # Its user-wide file also holds its state, so only its own command should change it.
        ConfigFile("mcpServers", remote(type="http"), local(), project=".mcp.json"),
        add=claude_add,
        add_stdio=claude_add_stdio,
    ),
    ClientProgram(
        "claude-desktop",
        "Claude Desktop",
        "https://modelcontextprotocol.io/docs/develop/connect-local-servers",
        _("claude_desktop_config.json (Settings, Developer, Edit Config); then start it again"),
        ConfigFile(
            "mcpServers",
            mcp_remote_entry,
            local(),
            user_config_paths("Claude", "claude_desktop_config.json"),
        ),
    ),
    ClientProgram(
        "cursor",
        "Cursor",
        "https://cursor.com/docs/mcp",
        _("~/.cursor/mcp.json, or .cursor/mcp.json of a project"),
        ConfigFile(
            "mcpServers",
            remote(),
            local(),
            {"": ConfigPath(".cursor/mcp.json")},
            ".cursor/mcp.json",
        ),
        link=cursor_link,
    ),
    ClientProgram(
        "vscode",
        "VS Code",
        "https://code.visualstudio.com/docs/copilot/reference/mcp-configuration",
        _('.vscode/mcp.json of a folder, or "MCP: Open User Configuration"'),
        ConfigFile(
            "servers",
            remote(type="http"),
            local(type="stdio"),
            user_config_paths("Code/User", "mcp.json"),
            ".vscode/mcp.json",
        ),
        link=vscode_link,
    ),
    ClientProgram(
        "codex",
        "Codex",
        "https://developers.openai.com/codex/mcp",
        _("~/.codex/config.toml, or .codex/config.toml of a project you trust"),
        ConfigFile(
            "mcp_servers",
            remote(headers="http_headers"),
            local(),
            {"": ConfigPath("config.toml", "~/.codex", "CODEX_HOME")},
            ".codex/config.toml",
            "toml",
        ),
    ),
    ClientProgram(
        "windsurf",
        "Windsurf",
        "https://docs.windsurf.com/windsurf/cascade/mcp",
        _("~/.codeium/windsurf/mcp_config.json; then the refresh button of its MCP panel"),
        ConfigFile(
            "mcpServers",
            remote("serverUrl"),
            local(),
            {"": ConfigPath(".codeium/windsurf/mcp_config.json")},
        ),
    ),
    ClientProgram(
        "zed",
        "Zed",
        "https://zed.dev/docs/ai/mcp",
        _("settings.json (zed: open settings), or .zed/settings.json of a project"),
        ConfigFile(
            "context_servers",
            remote(),
            local(source="custom"),
            user_config_paths("zed", "settings.json")
            | {"darwin": ConfigPath(".config/zed/settings.json")},
            ".zed/settings.json",
        ),
    ),
    ClientProgram(
        "chatgpt",
        "ChatGPT",
        "https://developers.openai.com/apps-sdk/deploy/connect-chatgpt",
        _("In its settings"),
        advice=CHATGPT,
    ),
    ClientProgram(
        "inspector",
        "MCP Inspector",
        "https://modelcontextprotocol.io/docs/tools/inspector",
        _("In a terminal, with Node 22.19 or newer"),
        add=inspect,
        add_stdio=inspect_stdio,
    ),
)


@dataclass(frozen=True)
class ConnectionMethod:
    """How to connect one client: a snippet, and a deep link if the client has one.

    ``words`` are the parts of a command between spaces. The page breaks lines only there.
    """

    key: str
    name: str
    snippet: Snippet
    link: str | None

    @property
    def words(self) -> list[str]:
        return self.snippet.text.split(" ") if self.snippet.language == "sh" else []


def connection_methods(server: Server, url: str) -> list[ConnectionMethod]:
    """Return how to connect each client in ``CLIENTS`` to ``server`` at ``url``."""
    name = short_name(server)
    needs_token = not (is_open(server) or signs_in(server))
    token = None if needs_token else ""
    return [
        ConnectionMethod(
            program.key,
            program.name,
            program.snippet(name, url=url, token=token),
            program.deep_link(name, url, asks_token=needs_token),
        )
        for program in CLIENTS
    ]


def is_open(server: Server) -> bool:
    """Whether everything on the server is public, so that no client needs a token."""
    return server._catalog.has_public and server._catalog.is_public


def signs_in(server: Server) -> bool:
    """Whether a client without a token gets a 401 with ``resource_metadata``, to start OAuth.

    A server with something public accepts anonymous clients, so they may never get a 401.
    """
    if server._catalog.has_public:
        return False
    return any("resource_metadata" in one.challenge(server) for one in _challenging())


def _challenging() -> Iterator[ChallengingVerifier]:
    return (one for one in verifiers() if isinstance(one, ChallengingVerifier))


def short_name(server: Server) -> str:
    """Return the server's name with only the characters that every client accepts."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", server.public_name).strip("-")[:64] or "mcp"
