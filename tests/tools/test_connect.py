import json
import shlex
import sys
from pathlib import Path

import pytest

from tools.connect import over_http, over_stdio, stdio

COMMAND = ["/opt/my env/bin/python", "/home/me/manage.py", "mcp_stdio", "--user", "alice"]
URL = "http://127.0.0.1:8000/mcp"
posix = pytest.mark.skipif(sys.platform == "win32", reason="other rules of quoting")


def configurations(text):
    """The JSON that a page of instructions holds."""
    found, rest = [], text
    while "\n  {" in rest:
        block, _, rest = rest.partition("\n  {")[2].partition("\n  }")
        found.append(json.loads("{" + block + "}"))
    return found


def test_every_client_that_signs_in_is_told_over_http():
    text = over_http(URL)
    names = ("Claude Code", "Cursor", "VS Code", "MCP Inspector")
    assert sorted(names, key=text.index) == list(names)
    cursor, code = configurations(text)
    assert cursor == {"mcpServers": {"atlas": {"url": URL}}}
    assert code == {"servers": {"atlas": {"type": "http", "url": URL}}}


def test_a_line_of_a_shell_names_the_address_and_shows_no_token():
    lines = over_http(URL).splitlines()
    claude, inspector = (shlex.split(x) for x in lines if x.startswith(("  claude", "  npx")))
    assert claude == ["claude", "mcp", "add", "--transport", "http", "atlas", URL]
    assert inspector[inspector.index("--server-url") + 1] == URL
    assert "header" not in over_http(URL).lower()


def test_every_client_is_told_over_stdio():
    text = over_stdio(COMMAND, "alice")
    names = ("Claude Code", "Claude Desktop", "Cursor", "VS Code", "MCP Inspector")
    assert sorted(names, key=text.index) == list(names)
    assert text.count("alice") == 6
    desktop, cursor, code = configurations(text)
    for server in (desktop["mcpServers"], cursor["mcpServers"], code["servers"]):
        assert [server["atlas"]["command"], *server["atlas"]["args"]] == COMMAND


@posix
def test_a_command_of_a_shell_is_the_command():
    text = over_stdio(COMMAND, "alice")
    lines = [line for line in text.splitlines() if line.startswith(("  claude", "  npx"))]
    assert [shlex.split(line)[-len(COMMAND) :] for line in lines] == [COMMAND, COMMAND]


def test_paths_are_absolute():
    python, manage, *rest = stdio(sys.executable, Path("manage.py"), "alice")
    assert Path(python).is_absolute() and manage == str(Path("manage.py").resolve())
    assert rest == ["mcp_stdio", "--user", "alice"]
