"""The guided conversation, for real: the official client, the server, a part of the atlas."""

import os
import subprocess
import sys

import pytest

from tools import conversation
from tools.environment import ROOT

HEADINGS = [step.__doc__ for step in conversation.STEPS]


@pytest.fixture(scope="module")
def atlas(tmp_path_factory):
    """A database of the atlas's tables, empty as yet."""
    database = tmp_path_factory.mktemp("atlas") / "atlas.sqlite3"
    environ = os.environ | {"ATLAS_DATABASE": str(database), "PYTHONUTF8": "1"}
    environ["DJANGO_SETTINGS_MODULE"] = "example_project.settings"

    def run(*command):
        return subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
        )

    assert run("manage.py", "migrate", "-v0").returncode == 0
    return run


@pytest.fixture(scope="module")
def world(atlas):
    assert atlas("manage.py", "load_atlas", "--largest=3000", "-v0").returncode == 0
    assert atlas("manage.py", "demo_users", "-v0").returncode == 0
    return atlas


def test_it_goes_through_every_step(world):
    done = world("-m", "tools.conversation")
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("== ")]
    steps = [f"== {number}. {heading}" for number, heading in enumerate(HEADINGS, start=1)]
    assert told == [*steps, "== That was all."]
    assert "\x1b" not in done.stdout  # no colours where there is no terminal
    assert conversation.PICTURE.read_bytes().startswith(b"\x89PNG")


def test_it_can_be_held_again(world):
    done = world("-m", "tools.conversation", "--interactive")  # nobody is at the keyboard
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_server_that_does_not_start_is_a_failure(atlas):
    done = atlas("-c", NOBODY)
    assert done.returncode == 1
    assert "It ended too early." in done.stdout


NOBODY = """
from tools import conversation
conversation.USER = "nobody"
raise SystemExit(conversation.main([]))
"""


def test_a_wrong_answer_is_a_failure(world):
    done = world("-c", WRONG)
    assert done.returncode == 1
    assert "✗ Unexpected: Kyoto was meant" in done.stdout


WRONG = """
from tools import conversation
class Confused(conversation.Conversation):
    async def completed(self, name, typed, **before):
        await super().completed(name, typed, **before)
        return {"country": "JP", "city": "Osaka"}[name]
conversation.Conversation = Confused
raise SystemExit(conversation.main([]))
"""
