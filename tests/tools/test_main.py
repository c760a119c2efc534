import importlib.util
import shutil
import subprocess
import sys

import pytest

from tools import __main__ as tools
from tools.environment import ROOT


def test_no_command_is_a_question(capsys):
    assert tools.main([]) == 0
    told = capsys.readouterr().out
    assert all(f"  {name} " in told for name in tools.COMMANDS)


def test_an_unknown_command_is_a_mistake(capsys):
    assert tools.main(["sing"]) == 2
    assert "usage" in capsys.readouterr().out


@pytest.mark.parametrize("command", tools.COMMANDS.values(), ids=tools.COMMANDS)
def test_every_command_has_its_module(command):
    assert importlib.util.find_spec(f"tools.{command.module}")


def test_every_command_is_a_target_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    phony = next(line for line in makefile.splitlines() if line.startswith(".PHONY"))
    assert phony.split()[1:] == ["help", *tools.COMMANDS]
    for target in phony.split()[1:]:
        assert (
            f"\n{target}:{' ' * (13 - len(target))}; @$(PYTHON) -m tools {target} $(ARGS)"
            in makefile
        )


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_alone_tells_what_there_is():
    command = ["make", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f"  {name} " in done.stdout for name in tools.COMMANDS)
    assert 'make COMMAND ARGS="ARGUMENTS"' in done.stdout


def test_it_starts_on_python_alone():
    """Isolated and without site-packages, as on a machine where nothing is installed."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", START], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "usage: python -m tools" in done.stdout


START = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tools import ci, clean, clients, conformance, install, matrix, newcomer, servers
from tools.__main__ import main
raise SystemExit(main([]))
"""
