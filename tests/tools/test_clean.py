import subprocess

from tools import clean
from tools.environment import ROOT


def test_what_was_made_goes_and_the_rest_stays(tmp_path, monkeypatch, capsys):
    goes = ["build/lib/a.py", ".venv-3.12/b", "example_project/db.sqlite3-wal", ".coverage"]
    goes += ["tests/deep/__pycache__/a.pyc", "example_project/secret_key"]
    stays = ["tests/deep/a.py", "example_project/settings.py", "README.md"]
    for name in [*goes, *stays]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(clean, "ROOT", tmp_path)
    assert clean.main([]) == 0
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(stays)
    assert "build" in capsys.readouterr().out


def test_nothing_that_is_committed_would_go():
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout
    made = {path.relative_to(ROOT).as_posix() for path in clean.made(ROOT)}
    assert not [
        name for name in kept.splitlines() if any(f"{name}/".startswith(f"{one}/") for one in made)
    ]
