import os
import subprocess
import sys

import pytest

from tools import environment


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project, and an environment that is not there yet."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "FOLDER", tmp_path / ".venv")
    return tmp_path


PROJECT = """
[project]
name = "small"
version = "1.0"
[project.optional-dependencies]
test = []
"""


def test_an_unprepared_process_is_outside(project):
    assert not environment.is_ready()


def test_inside_is_where_the_folder_is(monkeypatch):
    monkeypatch.setattr(environment, "FOLDER", environment.Path(sys.prefix))
    assert environment.is_ready()


def test_a_changed_project_is_installed_again(project):
    before = environment.stamp(".[test]")
    assert environment.stamp(".[test]") == before
    assert environment.stamp(".[demo]") != before
    (project / "pyproject.toml").write_text(PROJECT.replace("1.0", "2.0"))
    assert environment.stamp(".[test]") != before


def test_an_environment_is_made_once_and_entered(project, monkeypatch):
    installed = []
    monkeypatch.setattr(environment, "pip", lambda *arguments: installed.append(arguments))
    for _ in range(2):
        environment.prepare(("test",), ("extra==1",))
    assert installed == [("install", "-e", ".[test]"), ("install", "extra==1")]
    (project / "tools").mkdir()
    (project / "tools" / "__main__.py").write_text(
        "import sys; sys.exit(len(sys.argv) if sys.prefix != sys.base_prefix else 1)"
    )
    entering = f"""
import sys
sys.path.insert(0, {str(environment.Path(__file__).parents[2])!r})
from tools import environment
environment.ROOT = environment.Path({str(project)!r})
environment.FOLDER = environment.ROOT / ".venv"
raise SystemExit(environment.run_inside(["one", "two"]))
"""
    assert subprocess.run([sys.executable, "-c", entering]).returncode == 3


def test_a_failed_installation_is_told(monkeypatch, capfd):
    monkeypatch.setattr(environment, "FOLDER", environment.Path(sys.prefix))
    with pytest.raises(SystemExit, match="failed"):
        environment.pip("install", "--no-index", "no-such-package-here")
    assert "No matching distribution" in capfd.readouterr().err


def test_an_old_python_is_refused(monkeypatch):
    monkeypatch.setattr(environment, "OLDEST", (99, 0))
    with pytest.raises(SystemExit, match="Python 99.0 or newer"):
        environment.prepare(())


def test_another_folder_can_be_named():
    told = subprocess.run(
        [sys.executable, "-c", "from tools.environment import FOLDER; print(FOLDER.name)"],
        env=os.environ | {"TOOLS_ENVIRONMENT": ".venv-other"},
        cwd=environment.Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert told.stdout.strip() == ".venv-other"
