"""The pytest plugin, in pytest processes of a project with settings and of one without."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# An environment that was installed before the plugin existed has no entry point for it.
KNOWN = any(one.name == "django_mcp" for one in entry_points(group="pytest11"))
PLUGIN = ("-p", "no:randomly", *(() if KNOWN else ("-p", "django_mcp.testing.plugin")))


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a test file and returns pytest's output and exit code."""

    def made(source: str, *options: str) -> tuple[str, int]:
        (tmp_path / "test_it.py").write_text(source)
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        environment = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--rootdir", tmp_path, *PLUGIN, *options,
             "test_it.py"],
            cwd=tmp_path, capture_output=True, text=True, timeout=100,
            env=environment | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return done.stdout + done.stderr, done.returncode

    return made


FIXTURES = """
import pytest
from django.contrib.auth.models import User
from django_mcp.models import Session

rows = pytest.mark.django_db(databases="__all__")

@rows
def test_sync(mcp_client):
    mcp_client.call("add", a=1).assert_data(2)
    alice = mcp_client.acting_as(User.objects.create_user("alice"), transport="http")
    assert "reminder" in alice.prompts()

@rows
def test_session(mcp_client):
    client = mcp_client.acting_as(None, transport="http", revision="2025-11-25")
    client.call("chatty").assert_ok()
    assert Session.objects.count() == 1

@rows
@pytest.mark.asyncio
async def test_async(async_mcp_client):
    alice = async_mcp_client.acting_as(await User.objects.acreate(username="alice"))
    assert "reminder" in await alice.prompts()

@rows
def test_rows_are_rolled_back():
    assert not User.objects.exists() and not Session.objects.exists()

def test_database_fixture_after_the_client(mcp_client, db, django_user_model):
    django_user_model.objects.create_user("alice")
    mcp_client.call("add", a=1).assert_ok()

def test_without_a_database(mcp_client):
    mcp_client.call("add", a=1).assert_ok()
"""
# Without settings, loading the plugin must not import Django.
BARE = """
import sys

def test_nothing_is_imported():
    loaded = [name for name in sys.modules if name.split(".")[0] in ("django", "pydantic")]
    assert loaded == []
    assert not [name for name in sys.modules if name.startswith("django_mcp.declarations")]
"""


@pytest.mark.slow
def test_fixtures_provide_clients(run):
    printed, code = run(FIXTURES, "--ds", "tests.settings")
    assert (code, "6 passed" in printed) == (0, True), printed


def test_plugin_imports_nothing_in_a_project_without_django(run):
    printed, code = run(BARE, "-p", "no:django")
    assert (code, "1 passed" in printed) == (0, True), printed


def test_plugin_has_an_entry_point():
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert '[project.entry-points.pytest11]\ndjango_mcp = "django_mcp.testing.plugin"' in text
