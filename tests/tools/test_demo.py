import os
import subprocess
import sys

import pytest

from tools import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("largest", [1, 300])
def test_check_passes_however_few_cities_are_loaded(tmp_path, largest):
    check = [sys.executable, "-m", "tools", "demo", "--check", f"--largest={largest}"]
    environ = os.environ | {"ATLAS_DATABASE": str(tmp_path / "atlas.sqlite3")}
    environ.pop("DJANGO_SETTINGS_MODULE", None)
    done = subprocess.run(check, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
