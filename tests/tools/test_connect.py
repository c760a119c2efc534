import json
import shlex
import sys
from pathlib import Path

import pytest

from tools.connect import configuration, local, over_http, over_stdio, shell, stdio

COMMAND = ["/opt/my env/bin/python", "/home/me/manage.py", "mcp_stdio", "--user", "alice"]
URL, TOKEN = "http://127.0.0.1:8000/mcp", "mcp_a-token"
BEARER = f"Authorization: Bearer {TOKEN}"
posix = pytest.mark.skipif(sys.platform == "win32", reason="other rules of quoting")


def configurations(text):
    """The JSON that a page of instructions holds."""
    found, rest = [], text
    while "\n  {" in rest:
        block, _, rest = rest.partition("\n  {")[2].partition("\n  }")
        found.append(json.loads("{" + block + "}"))
    return found


def test_every_client_is_told_over_http():
    text = over_http(URL, TOKEN, COMMAND)
    names = ("Claude Code", "Claude Desktop", "Cursor", "VS Code", "ChatGPT", "MCP Inspector")
    assert sorted(names, key=text.index) == list(names)
    desktop, cursor, code = configurations(text)
    entry = {"url": URL, "headers": {"Authorization": f"Bearer {TOKEN}"}}
    assert cursor == {"mcpServers": {"atlas": entry}}
    assert code == {"servers": {"atlas": {"type": "http"} | entry}}
    assert desktop["mcpServers"]["atlas"]["command"] == COMMAND[0]


@posix
def test_a_line_of_a_shell_hands_the_token_on_whole():
    lines = [line for line in over_http(URL, TOKEN, COMMAND).splitlines() if "--header" in line]
    claude, inspector = map(shlex.split, lines)
    assert claude[:6] == ["claude", "mcp", "add", "--transport", "http", "atlas"]
    assert claude[6:] == [URL, "--header", BEARER]
    assert inspector[-2:] == ["--header", BEARER]
    assert inspector[inspector.index("--server-url") + 1] == URL


def test_every_client_is_told_over_stdio():
    text = over_stdio(COMMAND, "alice")
    names = ("Claude Code", "Claude Desktop", "Cursor", "VS Code", "MCP Inspector")
    assert sorted(names, key=text.index) == list(names)
    assert text.count("alice") == 6
    assert len(configurations(text)) == 3


def test_paths_are_absolute():
    python, manage, *rest = stdio(sys.executable, Path("manage.py"), "alice")
    assert Path(python).is_absolute() and manage == str(Path("manage.py").resolve())
    assert rest == ["mcp_stdio", "--user", "alice"]


@pytest.mark.parametrize(("key", "more"), [("mcpServers", {}), ("servers", {"type": "stdio"})])
def test_a_configuration_is_json_to_paste(key, more):
    server = json.loads(local(key, COMMAND, **more))[key]["atlas"]
    assert [server.pop("command"), *server.pop("args")] == COMMAND
    assert server == more
    assert json.loads(configuration(key, {"url": URL}))[key]["atlas"] == {"url": URL}


@posix
def test_a_command_survives_the_shell():
    assert shlex.split(shell(COMMAND)) == COMMAND
