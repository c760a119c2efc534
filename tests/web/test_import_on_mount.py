"""The modules of the server page are imported only when it is mounted."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

QUIET = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
from django.core.asgi import get_asgi_application
django = get_asgi_application()
print([name for name in sys.modules if name.startswith("django_mcp.web")])
from django_mcp.routing import mount
mount(django)
print([name for name in sys.modules if name.startswith("django_mcp.web")])
"""


def test_page_modules_are_imported_on_mount():
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, check=True)
    before, after = done.stdout.splitlines()
    assert before == "[]" and "django_mcp.web.page" in after
