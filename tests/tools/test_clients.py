import sys

import pytest

from tools import clients


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where the client would be installed, and what pip was told."""
    told = []
    monkeypatch.setattr(clients, "OLD_CLIENT", tmp_path / ".venv-mcp1")
    monkeypatch.setattr(clients, "run", lambda *command: told.append(command) or 0)
    return told


def test_what_is_missing_is_installed_in_a_place_apart(place):
    assert clients.main([]) == 0
    assert (clients.OLD_CLIENT / "pyvenv.cfg").exists()
    assert place[0][1:3] == ("-m", "pip")
    assert place[0][-1] == clients.WANTED


def test_a_failed_installation_is_a_failure(place, monkeypatch):
    monkeypatch.setattr(clients, "run", lambda *command: 7)
    assert clients.main([]) == 7


def test_what_is_there_is_not_installed_again(place, monkeypatch, capsys):
    monkeypatch.setattr(clients, "installed", lambda python: "1.30.0")
    assert clients.main([]) == 0
    assert not place
    assert "Ready: mcp 1.30.0" in capsys.readouterr().out


def test_an_interpreter_tells_what_it_has(tmp_path):
    assert clients.installed(sys.executable).startswith("2.")
    assert clients.installed(str(tmp_path / "none")) == ""


def test_the_tests_look_where_it_is_installed():
    from tests.clients.rows import OLD_CLIENT

    assert OLD_CLIENT.is_relative_to(clients.OLD_CLIENT)
