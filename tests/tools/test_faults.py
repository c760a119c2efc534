import shutil
import subprocess

import pytest

from tools import faults
from tools.environment import ROOT


@pytest.mark.parametrize(
    ("arguments", "programs"),
    [
        ([], {"nginx", "faketime", "redis-server"}),
        (["--layer", "none"], {"nginx", "faketime"}),
        (["--layer=memory", "--database=postgres"], {"nginx", "faketime", "initdb", "pg_ctl"}),
        (["--database", "postgres"], {"nginx", "faketime", "redis-server", "initdb", "pg_ctl"}),
        (["--layer", "postgres"], {"nginx", "faketime", "initdb", "pg_ctl"}),
        (["--mutants"], {"nginx", "faketime", "redis-server"}),
    ],
)
def test_what_a_campaign_needs(arguments, programs):
    assert faults.needed(arguments).keys() == programs


def test_what_is_missing_is_told_before_anything_begins(monkeypatch):
    monkeypatch.setattr(faults, "program", lambda name, package: exit(f"{name} of {package}"))
    monkeypatch.setattr(faults, "module", lambda *words: pytest.fail("It began."))
    with pytest.raises(SystemExit, match="nginx of nginx-light"):
        faults.main([])


def test_options_are_handed_on(monkeypatch):
    monkeypatch.setattr(faults, "program", lambda name, package: name)
    monkeypatch.setattr(faults, "module", lambda *words: words)
    assert faults.main(["--seed", "7"]) == ("tests.faults", "--seed", "7")


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_the_makefile_names_four_of_them():
    given = ["SECONDS=5", "SEED=7", "DATABASE=postgres", "LAYER=none", "ARGS=--workers 2"]
    command = ["make", "--dry-run", "--no-print-directory", "faults", *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    words = done.stdout.split()[4:]
    assert words == [
        "--workers", "2", "--seconds", "5", "--seed", "7", "--database", "postgres",
        "--layer", "none",
    ]  # fmt: skip
