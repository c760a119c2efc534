"""Configuration snippets, links and files of MCP clients."""

from __future__ import annotations

import base64
import json
import shlex
import sys
import tomllib
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from django_mcp.verifiers.personal_tokens import SECRET
from django_mcp.web.clients import CLIENTS, PLACEHOLDER, client, shell

URL, TOKEN = "https://shop.example/mcp", "mcp_" + "aB3-_x9" * 6 + "z"
COMMAND = ["/opt/my env/bin/python", "/home/me/manage.py", "mcp_stdio", "--user", "alice"]
BEARER = f"Bearer {TOKEN}"
FILES = [one for one in CLIENTS if one.file]
posix = pytest.mark.skipif(sys.platform == "win32", reason="other rules of quoting")
every = pytest.mark.parametrize("one", CLIENTS, ids=lambda one: one.key)


def config_entry(snippet, one):
    """Return the server's entry in the configuration of a client."""
    load = tomllib.loads if snippet.language == "toml" else json.loads
    assert one.file is not None
    return load(snippet.text)[one.file.root]["shop"]


def test_token_of_these_tests_has_the_right_format():
    assert SECRET.fullmatch(TOKEN)


def test_client_is_found_by_its_key():
    assert [client(one.key) for one in CLIENTS] == list(CLIENTS)
    assert len({one.key for one in CLIENTS}) == len(CLIENTS)
    with pytest.raises(LookupError, match="'emacs'. Known clients: claude-code, claude-desktop"):
        client("emacs")


@every
def test_every_client_has_a_source(one):
    source = urlsplit(one.source)
    assert source.scheme == "https" and source.hostname and one.where and one.name


@every
def test_snippet_contains_the_url_and_the_token(one):
    told = one.snippet("shop", url=URL, token=TOKEN)
    assert URL in told.text
    assert (TOKEN in told.text) == (one.key != "chatgpt")
    assert PLACEHOLDER not in told.text


@every
def test_snippet_without_a_token_has_a_placeholder(one):
    told = one.snippet("shop", url=URL)
    if one.key == "chatgpt":
        assert "cannot\nsend a personal access token" in told.text
    else:
        assert PLACEHOLDER in told.text


@every
def test_snippet_for_an_empty_token_has_no_header(one):
    told = one.snippet("shop", url=URL, token="")
    assert URL in told.text
    assert PLACEHOLDER not in told.text and "eader" not in told.text


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("cursor", {"url": URL, "headers": {"Authorization": BEARER}}),
        ("vscode", {"type": "http", "url": URL, "headers": {"Authorization": BEARER}}),
        ("codex", {"url": URL, "http_headers": {"Authorization": BEARER}}),
        ("windsurf", {"serverUrl": URL, "headers": {"Authorization": BEARER}}),
        ("zed", {"url": URL, "headers": {"Authorization": BEARER}}),
        (
            "claude-desktop",
            {
                "command": "npx",
                "args": ["-y", "mcp-remote", URL, "--header", "Authorization:${AUTH_HEADER}"],
                "env": {"AUTH_HEADER": BEARER},
            },
        ),
    ],
)
def test_snippet_has_the_format_of_the_client(key, expected):
    one = client(key)
    assert config_entry(one.snippet("shop", url=URL, token=TOKEN), one) == expected


@pytest.mark.parametrize("one", FILES, ids=lambda one: one.key)
def test_file_entry_without_a_token_has_no_header(one):
    assert "eader" not in json.dumps(one.file.http(URL, None))
    assert URL in json.dumps(one.file.http(URL, None))


@posix
@pytest.mark.parametrize("key", ["claude-code", "inspector"])
def test_shell_command_passes_the_whole_token(key):
    told = client(key).snippet("shop", url=URL, token=TOKEN)
    words = shlex.split(told.text)
    assert told.language == "sh" and words[-2:] == ["--header", f"Authorization: {BEARER}"]
    assert URL in words and "'" not in told.text  # not every shell removes them


def test_claude_code_command_has_the_name_first():
    words = shlex.split(client("claude-code").snippet("shop", url=URL, token=TOKEN).text)
    assert words[:7] == ["claude", "mcp", "add", "--transport", "http", "shop", URL]


@pytest.mark.parametrize("one", FILES, ids=lambda one: one.key)
def test_stdio_file_entry_contains_the_command(one):
    text = one.file.text("shop", one.file.stdio(COMMAND))
    load = tomllib.loads if one.file.language == "toml" else json.loads
    found = load(text)[one.file.root]["shop"]
    assert [found["command"], *found["args"]] == COMMAND


@posix
@every
def test_stdio_snippet_exists_for_clients_that_start_programs(one):
    told = one.stdio_snippet("shop", COMMAND)
    if one.key == "chatgpt":
        assert told is None
    elif told.language == "sh":
        assert shlex.split(told.text)[-len(COMMAND) :] == COMMAND
    else:
        found = config_entry(told, one)
        assert [found["command"], *found["args"]] == COMMAND


# Links.


@every
def test_deep_links_contain_no_token(one):
    for asks in (False, True):
        link = one.deep_link("shop", URL, asks_token=asks)
        assert (link is None) == (one.key not in ("cursor", "vscode"))
        assert link is None or "mcp_" not in unquote(link)


def cursor_link_config(asks):
    link = urlsplit(client("cursor").deep_link("shop", URL, asks_token=asks))
    assert (link.scheme, link.netloc, link.path) == (
        "cursor", "anysphere.cursor-deeplink", "/mcp/install",
    )  # fmt: skip
    asked = parse_qs(link.query, strict_parsing=True)
    assert asked["name"] == ["shop"]
    return json.loads(base64.b64decode(asked["config"][0], validate=True))


def test_cursor_link_contains_its_config():
    assert cursor_link_config(False) == {"url": URL}
    assert cursor_link_config(True) == {
        "url": URL,
        "headers": {"Authorization": f"Bearer {PLACEHOLDER}"},
    }


def vscode_link_config(asks):
    scheme, _, rest = client("vscode").deep_link("shop", URL, asks_token=asks).partition(":")
    path, _, query = rest.partition("?")
    assert (scheme, path) == ("vscode", "mcp/install")
    return json.loads(unquote(query))


def test_vscode_link_prompts_for_the_token():
    plain = {"name": "shop", "type": "http", "url": URL}
    assert vscode_link_config(False) == plain
    asked = vscode_link_config(True)
    (secret,) = asked.pop("inputs")
    assert secret["password"] is True and secret["type"] == "promptString"
    reference = "${input:" + secret["id"] + "}"
    assert asked == plain | {"headers": {"Authorization": f"Bearer {reference}"}}


# Invalid names and tokens.


@every
@pytest.mark.parametrize("name", ["", "a b", "a;rm", "a\n", "a.b", "x" * 65, "é", "--scope"])
def test_invalid_server_name_raises(one, name):
    for call in (
        lambda: one.snippet(name, url=URL),
        lambda: one.stdio_snippet(name, COMMAND),
        lambda: one.deep_link(name, URL),
    ):
        with pytest.raises(ValueError, match="not a valid server name"):
            call()


@every
@pytest.mark.parametrize("token", ["a b", 'a"b', "a\nb", "$(x)", "`x`", "a'b", "é", "a\r\nX: y"])
def test_invalid_token_raises_without_repeating_it(one, token):
    with pytest.raises(ValueError, match="letters, digits") as refused:
        one.snippet("shop", url=URL, token=token)
    assert token not in str(refused.value)


@posix
@pytest.mark.parametrize(
    "command",
    [COMMAND, ["a b", "$HOME", "it's", '"', "`x`", "\\", "é", "!x", "a;b"], ["%PATH%", "", "~"]],
)
def test_quoted_command_survives_the_shell(command):
    assert shlex.split(shell(command)) == command


def test_toml_table_escapes_any_path():
    one = client("codex")
    command = ['C:\\my "env"\\python.exe', "é\x7f\x01😀", "a\nb"]
    assert tomllib.loads(one.stdio_snippet("shop", command).text) == {
        "mcp_servers": {"shop": {"command": command[0], "args": command[1:]}}
    }


# Files.


@pytest.mark.parametrize(
    ("key", "platform", "path"),
    [
        ("cursor", "linux", ".cursor/mcp.json"),
        ("cursor", "win32", ".cursor/mcp.json"),
        ("claude-desktop", "linux", ".config/Claude/claude_desktop_config.json"),
        (
            "claude-desktop",
            "darwin",
            "Library/Application Support/Claude/claude_desktop_config.json",
        ),
        ("claude-desktop", "win32", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("vscode", "linux", ".config/Code/User/mcp.json"),
        ("vscode", "darwin", "Library/Application Support/Code/User/mcp.json"),
        ("codex", "darwin", ".codex/config.toml"),
        ("windsurf", "linux", ".codeium/windsurf/mcp_config.json"),
        ("zed", "darwin", ".config/zed/settings.json"),
        ("zed", "linux", ".config/zed/settings.json"),
    ],
)
def test_paths_of_user_files(key, platform, path, monkeypatch):
    for name in ("XDG_CONFIG_HOME", "APPDATA", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert client(key).file.path(platform=platform) == Path.home() / path


def test_environment_variables_change_the_paths(monkeypatch, tmp_path):
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    assert client("codex").file.path() == tmp_path / "config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert client("vscode").file.path(platform="linux") == tmp_path / "Code/User/mcp.json"


def test_paths_of_project_files(tmp_path):
    found = {one.key: one.file.path(tmp_path) for one in FILES}
    assert found.pop("windsurf") is None and found.pop("claude-desktop") is None
    assert {key: path.relative_to(tmp_path).as_posix() for key, path in found.items()} == {
        "claude-code": ".mcp.json",
        "cursor": ".cursor/mcp.json",
        "vscode": ".vscode/mcp.json",
        "codex": ".codex/config.toml",
        "zed": ".zed/settings.json",
    }
    assert client("claude-code").file.path() is None
