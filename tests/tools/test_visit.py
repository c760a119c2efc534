"""A visit that finds what it should is a part of the demonstration's test; here is the rest."""

import subprocess
import sys

from tools import serving
from tools.environment import ROOT


def visit(url):
    return subprocess.run(
        [sys.executable, "-m", "tools.visit", url, "mcp_no-token"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
    )


def test_where_nobody_listens_the_visit_fails_in_words():
    done = visit(f"{serving.origin(serving.free_port())}/mcp")
    assert done.returncode == 1
    assert "✗" in done.stdout
    assert "Traceback" not in done.stderr
