import json
import shlex
import sys
from pathlib import Path

import pytest

from tools.connect import configuration, instructions, shell

COMMAND = ["/opt/my env/bin/python", "/home/me/manage.py", "mcp_stdio", "--user", "alice"]


def test_every_client_is_told():
    text = instructions(sys.executable, Path("manage.py"), "alice")
    assert all(name in text for name in ("Claude Code", "Claude Desktop", "Cursor", "VS Code"))
    assert text.count("alice") == 5
    assert str(Path("manage.py").resolve()) in text


@pytest.mark.parametrize(("key", "more"), [("mcpServers", {}), ("servers", {"type": "stdio"})])
def test_a_configuration_is_json_to_paste(key, more):
    server = json.loads(configuration(key, COMMAND, **more))[key]["atlas"]
    assert [server.pop("command"), *server.pop("args")] == COMMAND
    assert server == more


@pytest.mark.skipif(sys.platform == "win32", reason="other rules of quoting")
def test_a_command_survives_the_shell():
    assert shlex.split(shell(COMMAND)) == COMMAND
