"""The project in ``tests.oauth.project``, in its own process, with two users."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.servers import ROOT, Served, environment
from tools.ports import free_port

APPLICATION = "tests.oauth.project.asgi:application"
SETTINGS = "tests.oauth.project.settings"
PASSWORD = "correct horse"
PEOPLE = """
from django.contrib.auth.models import User
for name in ("alice", "bob"):
    User.objects.create_user(name, password={password!r})
"""


def manage(folder: Path, environ: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "django", *arguments], cwd=ROOT, text=True,
        env=environment(folder, **environ), capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@cache
def _template() -> Path:
    """Return a folder with a migrated database and the users, to be copied."""
    folder = Path(tempfile.mkdtemp(prefix="django_mcp_site_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    environ = {"DJANGO_SETTINGS_MODULE": SETTINGS, "SITE_URL": "http://127.0.0.1"}
    manage(folder, environ, "migrate", "-v0")
    manage(folder, environ, "shell", "-v0", "-c", PEOPLE.format(password=PASSWORD))
    return folder


class Site:
    """The folder, the URL and the management commands of a project."""

    def __init__(self, folder: Path, seconds: int = 3600, **environ: str) -> None:
        self.folder, self.port = folder, free_port()
        self.origin = f"http://127.0.0.1:{self.port}"
        self.endpoint = f"{self.origin}/mcp"
        self.environ = {
            "DJANGO_SETTINGS_MODULE": SETTINGS, "SITE_URL": self.origin,
            "TOKEN_SECONDS": str(seconds), **environ,
        }  # fmt: skip
        shutil.copytree(_template(), folder, dirs_exist_ok=True)

    def manage(self, *arguments: str) -> str:
        return manage(self.folder, self.environ, *arguments)

    def run(self, code: str) -> str:
        return self.manage("shell", "-v0", "-c", code).strip()

    def permit(self, name: str, codename: str) -> None:
        self.run(
            "from django.contrib.auth.models import Permission, User;"
            f"permission = Permission.objects.get(codename={codename!r});"
            f"User.objects.get(username={name!r}).user_permissions.add(permission)"
        )

    def serve(self) -> Served:
        given: dict[str, Any] = {"application": APPLICATION, "port": self.port}
        return Served("uvicorn", self.folder, **given, **self.environ)
