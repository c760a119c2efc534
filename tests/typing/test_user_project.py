"""A project's ``mcp.py`` passes ``mypy --strict``, and mypy reports its mistakes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import django_mcp

ROOT = Path(django_mcp.__file__).parent.parent
PROJECT = Path(__file__).parent / "project"
CONFIG = """\
[mypy]
strict = True
plugins = mypy_django_plugin.main
[mypy.plugins.django-stubs]
django_settings_module = billing.settings
# Report only errors in the project's own files, as if django_mcp were installed.
[mypy-django_mcp.*]
follow_imports = silent
[mypy-channels.*,oauth2_provider.*,oauthlib.*,jwcrypto.*]
ignore_missing_imports = True
"""
MISTAKES = """\
import django_mcp as mcp

mcp.server.titel = "The shop"
mcp.server.title = 5
mcp.ToolError(5)


@mcp.register
class Close(mcp.Tool):
    permission = 5

    def has_permission(self, request: mcp.Request) -> str:
        return request.nobody


@mcp.tool
def close(request: mcp.Request) -> int:
    return mcp.trusted("x")


permission = mcp.PUBLC


@mcp.register
class Undeclared:
    pass


mcp.register(5, Close)


@mcp.tool
def ask(request: mcp.Request) -> str:
    request.elicit("Sure?", key=5)
    request.elicit("How many?", int, defualt=3)
    return request.once("number", lambda: 5)
"""

pytestmark = pytest.mark.slow


def test_project_passes_strict_type_checks_and_mistakes_are_reported(tmp_path):
    shutil.copytree(PROJECT, tmp_path, dirs_exist_ok=True)
    (tmp_path / "mypy.ini").write_text(CONFIG)
    (tmp_path / "billing/mistakes.py").write_text(MISTAKES)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-color-output", "--hide-error-context", "billing"],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(ROOT), "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    *found, _ = done.stdout.splitlines()
    lines = {int(line.split(":")[1]) for line in found if "mistakes.py" in line}
    assert lines == {3, 4, 5, 10, 12, 13, 18, 21, 25, 29, 34, 35, 36}, done.stdout + done.stderr
    assert not [line for line in found if "mistakes.py" not in line], done.stdout
