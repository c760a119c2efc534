"""The examples of the page about telemetry work, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

from tools.ports import free_port

from .pages import DOCS, ROOT, blocks

PAGE = "docs/how-to/telemetry.md"
CALL = """
import asyncio, urllib.request
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django_mcp"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    SECRET_KEY="x",
)
django.setup()
from django_mcp.calls.records import wrappers
print(len(wrappers))
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::SyntaxWarning", "-c", code],
        capture_output=True, text=True, cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_instrumentation_of_the_page_is_used():
    assert (
        run(CALL + blocks(DOCS.parent / PAGE, "python")[0] + "\nprint(len(wrappers))") == "0\n1\n"
    )


def test_prometheus_serves_the_metric(tmp_path):
    code = blocks(DOCS.parent / PAGE, "python")[1]
    port = free_port()
    assert "9464" in code
    read = f"""
        metrics.get_meter("x").create_counter("shown").add(1)
        url = "http://127.0.0.1:{port}/metrics"
        print("shown_total" in urllib.request.urlopen(url).read().decode())
    """
    assert run(CALL + code.replace("9464", str(port)) + dedent(read)) == "0\nTrue\n"
