"""A terminal behaves as the one that a reader has open."""

import os
import sys

import pytest

from tools import terminal
from tools.terminal import Failed, Terminal, ended

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="It needs a shell.")
SERVE = "trap 'echo bye; exit' INT; echo ready; while true; do sleep 0.05; done"
DEAF = "trap '' INT; echo ready; while true; do sleep 0.05; done"


@pytest.fixture
def typed(tmp_path):
    (tmp_path / "logs").mkdir()
    return Terminal(tmp_path, dict(os.environ), tmp_path / "logs")


def test_what_is_printed_and_how_it_ends_is_told(typed):
    assert typed.run("echo one; echo two >&2") == (0, "one\ntwo\n")
    assert typed.run("exit 3").code == 3
    assert typed.run("false").code == 1


def test_the_next_command_finds_what_the_last_one_changed(typed):
    typed.run("mkdir a && cd a")
    typed.run("export WORD='two words'")
    (typed.folder / "activate").write_text("PATH=/nowhere:$PATH\nexport PATH")
    typed.run("source ./activate")
    assert typed.run('basename "$PWD"; echo "$WORD"; echo "${PATH%%:*}"').text == (
        "a\ntwo words\n/nowhere\n"
    )


def test_nobody_answers_a_question(typed):
    assert typed.run("read answer").code == 1


def test_a_command_that_never_ends_is_ended(typed, monkeypatch):
    monkeypatch.setattr(terminal, "PATIENCE", 0.2)
    with pytest.raises(Failed, match="more than"):
        typed.run("sleep 60")


def test_a_server_is_left_running_and_ended(typed):
    left = []
    with ended(left):
        left.append(server := typed.start(SERVE))
        assert server.until("ready", 1, 30)
        assert not server.until("ready", 2, 0.1)
        assert typed.run("echo beside").text == "beside\n"
    assert "bye" in server.text() and not left


def test_after_a_failure_its_own_words_are_told_and_no_server_is_left(typed):
    left = [server := typed.start(DEAF)]
    assert server.until("ready", 1, 30)
    with pytest.raises(LookupError, match="the first"), ended(left):
        raise LookupError("the first")
    assert server.process.poll() is not None and not left


def test_a_server_that_ends_by_itself_is_a_failure(typed):
    with pytest.raises(Failed, match="exit code 3"):
        typed.start("exit 3").until("ready", 1, 30)


def test_a_server_that_does_not_heed_ctrl_c_is_a_failure_and_is_gone(typed, monkeypatch):
    monkeypatch.setattr(terminal, "ENDING", 0.2)
    server = typed.start(DEAF)
    assert server.until("ready", 1, 30)
    with pytest.raises(Failed, match="Ctrl-C"):
        server.end()
    assert server.process.poll() is not None
