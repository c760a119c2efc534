"""``mcp_connect``: the configurations it prints and writes, and where tokens must not go."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from django.core.management import CommandError, call_command
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import django_mcp
from django_mcp.declarations.server import Server
from django_mcp.models import Token
from django_mcp.verifiers.personal_tokens import SECRET, PersonalAccessTokens
from django_mcp.web.clients import CLIENTS, PLACEHOLDER
from tests.servers import Served, prepare
from tests.servers import environment as served_environment
from tests.spec.process import ROOT, RequestWriter, command, environment

URL = "https://shop.example/mcp"
GIVEN = "mcp_" + "g" * 43
posix = pytest.mark.skipif(os.name != "posix", reason="scripts and modes are of POSIX")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch, settings):
    """Use an empty home directory and working directory."""
    settings.DJANGO_MCP = {"URL": "https://shop.example"}
    for name in ("XDG_CONFIG_HOME", "APPDATA", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.chdir(work)
    return home


@pytest.fixture
def run(capsys):
    """Return a function that runs the command and returns stdout and stderr."""

    def run(*arguments):
        call_command("mcp_connect", *map(str, arguments))
        said = capsys.readouterr()
        return said.out, said.err

    return run


def command_error(run, *arguments):
    with pytest.raises(CommandError) as error:
        run(*arguments)
    return str(error.value)


def servers_in(path, root="mcpServers"):
    return json.loads(path.read_text())[root]


# Printing.


def test_known_clients_are_listed_without_a_client(run):
    out, err = run()
    assert [line.split()[0] for line in out.splitlines()] == [one.key for one in CLIENTS]
    assert "chatgpt         ChatGPT         http\n" in out and "mcp_connect CLIENT" in err


def test_stdout_contains_only_the_configuration(run):
    out, err = run("cursor", "--token", GIVEN)
    assert json.loads(out) == {
        "mcpServers": {"django": {"url": URL, "headers": {"Authorization": f"Bearer {GIVEN}"}}}
    }
    assert "~/.cursor/mcp.json" in err and GIVEN not in err


def test_missing_token_is_explained(run):
    out, err = run("vscode")
    assert PLACEHOLDER in out and "mcp_connect vscode --user NAME --new-token" in err
    assert not list(Path.home().iterdir())


def test_name_and_server_options(run):
    billing = Server("billing & more", path="mcp/billing")
    out, _ = run("cursor", "--server", billing.name)
    assert json.loads(out)["mcpServers"]["billing-more"]["url"] == f"{URL}/billing"
    out, _ = run("cursor", "--name", "my_shop-1")
    assert "my_shop-1" in json.loads(out)["mcpServers"]


def test_public_server_needs_no_token(run, home):
    fair = Server("fair")

    @fair.tool(permission=django_mcp.PUBLIC)
    def sum(request, a: int, b: int) -> int:
        return a + b

    out, err = run("cursor", "--server", "fair")
    assert json.loads(out)["mcpServers"]["fair"] == {"url": f"{URL}/fair"}
    assert "token" not in err
    _, err = run("cursor", "--server", "fair", "--write")
    assert "token" not in err and "eader" not in (home / ".cursor/mcp.json").read_text()


def test_missing_url_setting_is_reported(run, settings):
    settings.DJANGO_MCP = {}
    out, err = run("cursor")
    assert "http://localhost/mcp" in out
    assert 'DJANGO_MCP["URL"] is not set, so the address is http://localhost/mcp.' in err


def test_sse_url_is_printed_if_enabled(run, monkeypatch):
    assert "SSE" not in run("cursor")[1]
    monkeypatch.setattr(django_mcp.server, "sse", True)
    assert f"Clients that support only HTTP+SSE use {URL}/sse." in run("cursor")[1]


def test_token_can_be_read_from_stdin(run, monkeypatch, tmp_path):
    (tmp_path / "pipe").write_text(f"{GIVEN}\n")
    with (tmp_path / "pipe").open() as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        out, _ = run("cursor", "--token", "-")
    assert GIVEN in out


def test_stdio_command_works_in_any_directory(alice, run):
    out, err = run("zed", "--stdio", "--user", "alice")
    found = servers_of(out, "context_servers")["django"]
    words = [found["command"], *found["args"]]
    assert Path(words[0]).is_absolute() and words[words.index("--user") + 1] == "alice"
    assert words[words.index("--settings") + 1] == "tests.settings"
    assert "nobody" not in err
    out, err = run("zed", "--stdio")
    assert "--user" not in out and "can use only what is PUBLIC" in err


def servers_of(text, root):
    return json.loads(text)[root]


# New tokens.


def test_new_token_is_limited_to_the_user_and_the_server(alice, run):
    out, err = run("cursor", "--user", "alice", "--new-token")
    secret = servers_of(out, "mcpServers")["django"]["headers"]["Authorization"].split()[1]
    token = Token.objects.get()
    assert SECRET.fullmatch(secret) and token.digest == Token.digest_of(secret)
    assert (token.user, token.server, token.name) == (alice, "default", "Cursor: django")
    assert secret not in err and "acts for 'alice' and expires" in err
    default = Server("other")
    assert not PersonalAccessTokens().lookup(secret, default)


def test_failed_write_creates_no_token(alice, run, home):
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text("// mine\n{}")
    words = command_error(run, "cursor", "--user", "alice", "--new-token", "--write")
    assert "comments would be lost" in words and not Token.objects.exists()
    assert "--print" in words


@pytest.mark.django_db
def test_new_token_for_an_unknown_user_is_an_error(run, home):
    assert "no user 'bob'" in command_error(
        run, "cursor", "--user", "bob", "--new-token", "--write"
    )
    assert not list(home.iterdir())


# Writing.


@posix
def test_file_of_the_client_is_written(alice, run, home):
    path = home / ".cursor/mcp.json"
    out, err = run("cursor", "--user", "alice", "--new-token", "--write")
    secret = servers_in(path)["django"]["headers"]["Authorization"].split()[1]
    assert Token.objects.get().digest == Token.digest_of(secret)
    assert out == "" and secret not in err and f"Added 'django' to {path}." in err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    out, err = run("cursor", "--token", secret, "--write")
    assert "nothing was changed" in err
    out, err = run("cursor", "--token", GIVEN, "--write", "--global")
    assert (
        f"Replaced headers of 'django' in {path}." in err and "The file before the change: " in err
    )
    assert secret not in out + err and GIVEN not in out + err


@pytest.mark.parametrize(
    ("key", "root", "path"),
    [
        ("claude-code", "mcpServers", ".mcp.json"),
        ("cursor", "mcpServers", ".cursor/mcp.json"),
        ("vscode", "servers", ".vscode/mcp.json"),
        ("zed", "context_servers", ".zed/settings.json"),
    ],
)
def test_project_file_contains_no_token(run, home, key, root, path):
    _, err = run(key, "--write", "--project")
    assert servers_in(Path(path), root)["django"]["url"] == URL
    assert "eader" not in Path(path).read_text() and "can use only what is PUBLIC" in err
    assert not list(home.iterdir())


@pytest.mark.parametrize("secret", [("--token", GIVEN), ("--user", "alice", "--new-token")])
def test_token_for_a_project_file_is_rejected(alice, run, secret):
    words = command_error(run, "claude-code", "--write", "--project", *secret)
    assert ".mcp.json may be shared with others" in words and GIVEN not in words
    assert not list(Path.cwd().iterdir()) and not Token.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("emacs",), "Known clients: claude-code"),
        (("cursor", "--server", "nonsense"), "there are: django"),
        (("cursor", "--name", "a b"), "1 to 64 letters"),
        (("cursor", "--token", "a b"), "letters, digits"),
        (("cursor", "--new-token"), "the user that the token acts as"),
        (("cursor", "--user", "alice"), "--stdio or --new-token"),
        (("cursor", "--stdio", "--token", GIVEN), "there is no token"),
        (("cursor", "--name=--scope"), "1 to 64 letters"),
        (("cursor", "--stdio", "--user", "nobody"), "no user 'nobody'"),
        (("chatgpt", "--stdio"), "cannot start a program"),
        (("chatgpt", "--token", GIVEN), "cannot send an access token"),
        (("chatgpt", "--write"), "ChatGPT has no configuration file"),
        (("inspector", "--write"), "MCP Inspector has no configuration file"),
        (("windsurf", "--write", "--project"), "for a project: use --global"),
        (("cursor", "--http", "--stdio"), "not allowed with"),
        (("cursor", "--print", "--write"), "not allowed with"),
    ],
)
@pytest.mark.django_db
def test_conflicting_options_are_rejected(run, home, arguments, words):
    said = command_error(run, *arguments)
    assert words in said and GIVEN not in said
    assert not list(home.iterdir()) and not list(Path.cwd().iterdir())


# Claude Code writes its own file.

CLAUDE = """#!{python}
import json, os, sys
known = os.path.expanduser("~/known.json")
servers = json.load(open(known)) if os.path.exists(known) else {{}}
with open(os.path.expanduser("~/called.jsonl"), "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
verb, name = sys.argv[2], "django"
if verb == "add" and name in servers:
    sys.exit(print(f"MCP server {{name}} already exists in user config", file=sys.stderr) or 1)
if "broken" in servers:
    sys.exit(f"cannot: {{sys.argv[1:]}}")
servers.pop(name, None)
if verb == "add":
    servers[name] = sys.argv[1:]
json.dump(servers, open(known, "w"))
"""


@pytest.fixture
def claude(home, monkeypatch):
    """A replacement of Claude Code's command. Returns a function that lists its calls."""
    folder = home.parent / "bin"
    folder.mkdir()
    (folder / "claude").write_text(CLAUDE.format(python=sys.executable))
    (folder / "claude").chmod(0o700)
    monkeypatch.setenv("PATH", str(folder))

    def calls():
        return [json.loads(line) for line in (home / "called.jsonl").read_text().splitlines()]

    return calls


@posix
def test_claude_code_is_configured_by_its_own_command(run, claude):
    _, err = run("claude-code", "--write", "--token", GIVEN)
    adding = ["mcp", "add", "--scope", "user", "--transport", "http", "django", URL]
    adding += ["--header", f"Authorization: Bearer {GIVEN}"]
    assert claude() == [adding] and "Added 'django' to Claude Code" in err
    run("claude-code", "--write", "--token", GIVEN)
    assert claude()[1:] == [adding, ["mcp", "remove", "--scope", "user", "django"], adding]


@posix
def test_errors_of_claude_code_are_shown_without_the_token(run, claude, home):
    (home / "known.json").write_text('{"broken": 1}')
    words = command_error(run, "claude-code", "--write", "--token", GIVEN)
    assert "claude mcp add: cannot" in words and GIVEN not in words and PLACEHOLDER in words


def test_missing_claude_command_is_explained(run, home, monkeypatch):
    monkeypatch.setenv("PATH", str(home))
    words = command_error(run, "claude-code", "--write")
    assert "'claude' of Claude Code is not on the PATH" in words and "--print" in words


# A client uses the written configuration.


@pytest.mark.slow
def test_written_stdio_configuration_works_in_any_directory(tmp_path, home):
    database = tmp_path / "noisy.sqlite3"
    environ = environment(database, HOME=str(home), USERPROFILE=str(home), PYTHONUNBUFFERED="1")
    for words in (["migrate", "-v0"], ["mcp_connect", "cursor", "--stdio", "--write"]):
        subprocess.run(command(*words), cwd=ROOT, env=environ, check=True, capture_output=True)
    ((name, entry),) = servers_in(home / ".cursor/mcp.json").items()
    assert name == "tests"
    asking = RequestWriter("2026-07-28")
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        input=asking.line("tools/list", {}),
        capture_output=True, cwd=tmp_path, timeout=120,
        env={k: v for k, v in environ.items() if k != "DJANGO_SETTINGS_MODULE"},
    )  # fmt: skip
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["result"]["tools"], done.stderr


async def tools_of(entry):
    """Return the tools that the official client lists with an entry's URL and headers."""
    async with (
        httpx2.AsyncClient(headers=entry["headers"], timeout=60) as http,
        Client(streamable_http_client(entry["url"], http_client=http)) as client,
    ):
        return [tool.name for tool in (await client.list_tools()).tools]


@pytest.mark.slow
def test_written_http_configuration_works(tmp_path, home):
    (tmp_path / "addressed.py").write_text(
        "from tests.spec.served.settings import *\nDJANGO_MCP |= {'URL': os.environ['ORIGIN']}\n"
    )
    folder = tmp_path / "served"
    folder.mkdir()
    with Served("uvicorn", prepare(folder)) as running:
        environ = served_environment(
            folder, DJANGO_SETTINGS_MODULE="addressed", PYTHONPATH=str(tmp_path),
            ORIGIN=f"http://127.0.0.1:{running.port}", HOME=str(home), USERPROFILE=str(home),
        )  # fmt: skip
        person = ("--noinput", "--username", "alice", "--email", "a@shop.example")
        connect = ("mcp_connect", "cursor", "--user", "alice", "--new-token", "--write")
        for words in (("createsuperuser", *person), connect):
            done = subprocess.run(
                command(*words), cwd=ROOT, env=environ, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
        (entry,) = servers_in(home / ".cursor/mcp.json").values()
        assert "add" in asyncio.run(tools_of(entry))
        assert entry["headers"]["Authorization"].split()[1] not in done.stdout + done.stderr
        wrong = {"url": entry["url"], "headers": {"Authorization": f"Bearer {GIVEN}"}}
        with pytest.raises(Exception):  # noqa: B017 - whatever the client makes of a 401
            asyncio.run(tools_of(wrong))
