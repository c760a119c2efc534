"""The installation of the conformance suite, and what runs it."""

import json
import os
import shutil
import sys

import pytest

from tools import suite


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Nothing is installed yet."""
    monkeypatch.setattr(suite, "FOLDER", tmp_path / "conformance")
    monkeypatch.setattr(suite, "PACKAGES", tmp_path / "conformance" / "node_modules")
    return tmp_path


def program(path, code):
    path.write_text(f"#!{sys.executable}\n{code}\n")
    path.chmod(0o755)
    return str(path)


def on_the_path(monkeypatch, **programs):
    monkeypatch.setattr(suite.shutil, "which", lambda name: programs.get(name))


def test_the_lock_file_is_of_one_suite_and_names_no_place():
    locked = json.loads((suite.LOCKED / "package-lock.json").read_text())
    asked = json.loads((suite.LOCKED / "package.json").read_text())
    assert locked["packages"][""]["dependencies"] == asked["dependencies"]
    assert not any("resolved" in package for package in locked["packages"].values())
    assert all("integrity" in one for name, one in locked["packages"].items() if name)
    assert str(suite.OWN_NODE.parent.parent.name) in asked["optionalDependencies"]


def test_without_npm_it_is_absent(elsewhere, monkeypatch):
    on_the_path(monkeypatch)
    assert suite.why_absent() == "there is no npm on the PATH; it comes with Node.js"


def test_with_npm_it_is_there(elsewhere, monkeypatch):
    on_the_path(monkeypatch, npm="/usr/bin/npm")
    monkeypatch.setattr(suite, "BRINGS_NODE", True)
    assert suite.why_absent() == ""


@pytest.mark.skipif(sys.platform == "win32", reason="the programs here are scripts")
def test_where_none_is_brought_node_is_new_enough_or_absent(elsewhere, monkeypatch):
    monkeypatch.setattr(suite, "BRINGS_NODE", False)
    monkeypatch.setattr(suite, "OWN_NODE", elsewhere / "none")
    for version, fits in (("v20.20.2", False), ("v22.0.0", True), ("nonsense", False)):
        node = program(elsewhere / "node", f"print({version!r})")
        on_the_path(monkeypatch, npm="/usr/bin/npm", node=node)
        assert (suite.why_absent() == "") == fits
        if fits:
            assert suite.node() == node
        else:
            with pytest.raises(SystemExit, match="Node 22 or newer is needed"):
                suite.node()


@pytest.mark.skipif(sys.platform == "win32", reason="the programs here are scripts")
def test_it_is_installed_once(elsewhere, monkeypatch):
    code = "import os, sys; assert sys.argv[1] == 'ci'; os.mkdir('node_modules')"
    on_the_path(monkeypatch, npm=program(elsewhere / "npm", code))
    suite.install()  # the second time, the program would fail
    suite.install()
    assert suite.is_installed()
    locked = suite.FOLDER / "package-lock.json"
    assert locked.read_bytes() == (suite.LOCKED / "package-lock.json").read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="the programs here are scripts")
def test_a_failed_installation_is_told(elsewhere, monkeypatch):
    on_the_path(monkeypatch, npm=program(elsewhere / "npm", "raise SystemExit('no network')"))
    with pytest.raises(SystemExit, match="(?s)npm ci failed.*no network"):
        suite.install()
    assert not suite.is_installed()


def test_another_lock_file_is_another_installation(elsewhere, monkeypatch):
    suite.PACKAGES.mkdir(parents=True)
    suite.stamp().touch()
    assert suite.is_installed()
    shutil.copytree(suite.LOCKED, elsewhere / "other", ignore=shutil.ignore_patterns("*.py"))
    monkeypatch.setattr(suite, "LOCKED", elsewhere / "other")
    with open(suite.LOCKED / "package-lock.json", "a") as locked:
        locked.write("\n")
    assert not suite.is_installed()


@pytest.mark.skipif(sys.platform == "win32", reason="the programs here are scripts")
def test_a_run_that_hangs_is_stopped_and_judged(elsewhere, monkeypatch, capsys):
    node = program(elsewhere / "node", "import time; print('begun', flush=True); time.sleep(60)")
    monkeypatch.setattr(suite, "node", lambda: node)
    monkeypatch.setattr(suite, "PATIENCE", 0.5)
    verdict = suite.run_set("2025-11-25", "http://127.0.0.1:1/mcp", elsewhere / "results")
    assert "2025-11-25: stopped after 0.5 s" in capsys.readouterr().out
    assert verdict.problems and all("did not run" in problem for problem in verdict.problems)
    assert (elsewhere / "results" / "log.txt").read_text() == "begun\n"


@pytest.mark.skipif(sys.platform == "win32", reason="the programs here are scripts")
def test_who_hears_of_a_run_may_end_it(elsewhere, monkeypatch):
    told, code = [], "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    monkeypatch.setattr(suite, "node", lambda: program(elsewhere / "node", code))

    def hear(line):
        told.append(int(line))
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        suite.run("authorization", (), elsewhere / "results", hear)
    with pytest.raises(ProcessLookupError):
        os.kill(told[0], 0)
