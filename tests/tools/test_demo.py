"""The commands that prepare and serve the demonstration."""

import os
import subprocess
import sys

import pytest

from tools import ROOT, serving


@pytest.mark.slow
@pytest.mark.parametrize("largest", [1, 300])
def test_demo_check_passes_with_few_cities(tmp_path, largest):
    check = [sys.executable, "-m", "tools", "demo", "--check", f"--largest={largest}"]
    environ = os.environ | {"ATLAS_DATABASE": str(tmp_path / "atlas.sqlite3")}
    environ.pop("DJANGO_SETTINGS_MODULE", None)
    done = subprocess.run(check, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_demo_server_listens_on_loopback_only():
    assert serving.command(8001)[-1] == "127.0.0.1:8001"
    assert serving.environment(8001)["ATLAS_URL"] == "http://127.0.0.1:8001"
