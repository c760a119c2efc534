import sys

import pytest

from tools import demo


@pytest.fixture
def commands(monkeypatch):
    """What the demonstration runs, instead of running it: each part has tests of its own."""
    run = []
    monkeypatch.setattr(demo, "manage", lambda *command: run.append(command[0]) or 0)
    monkeypatch.setattr(demo, "run", lambda *command, **environ: run.append(command[-1]) or 0)
    return run


def test_it_goes_from_nothing_to_a_conversation(commands, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(demo, "CONVERSATION", tmp_path)
    assert demo.main([]) == 0
    assert commands == ["migrate", "migrate", "load_atlas", "demo_users", "tools.conversation"]
    assert f"claude mcp add atlas -- {sys.executable}" in capsys.readouterr().out


def test_without_a_conversation_it_tells_how_to_connect(commands, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(demo, "CONVERSATION", tmp_path / "none.py")
    assert demo.main([]) == 0
    assert "tools.conversation" not in commands
    assert "mcpServers" in capsys.readouterr().out


def test_it_stops_where_a_step_fails(commands, monkeypatch):
    monkeypatch.setattr(demo, "manage", lambda *command: commands.append(command[0]) or 3)
    assert demo.main([]) == 3
    assert commands == ["migrate"]
