"""
What the app adds to the start of each process of a project: processor time and memory.

    python -m tools benchmark startup [--short]

`manage.py check` runs in a small project with Django's own apps, in processes that take turns:
without the app, with it, with a tool and a model resource, with django-oauth-toolkit, and with
`django_mcp.oauth`. The bytecode is compiled before. Exits with 3 unless the app costs at most 0.15
seconds of the processor and 8 MiB.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tools import ROOT
from tools.benchmark import UNMET

MOST_SECONDS, MOST_MIB = 0.15, 8.0
SETTINGS = """
SECRET_KEY = "measured, not served, and longer than fifty characters"
INSTALLED_APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
    "django.contrib.messages", "django.contrib.sessions", "django.contrib.staticfiles", *{apps}
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "APP_DIRS": True,
    "OPTIONS": {{"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]}},
}}]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}}}
ROOT_URLCONF, STATIC_URL, LOGIN_URL = "urls", "/static/", "/admin/login/"
URL = "http://localhost:8000"
if "django_mcp.oauth" in INSTALLED_APPS:
    from django_mcp.oauth import dot_settings

    OAUTH2_PROVIDER = dot_settings(URL)
DJANGO_MCP = {{"URL": URL, "VERIFIERS": {verifiers}}}
"""
URLS = """
from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), *[path("", include(one)) for one in {urls}]]
"""
DECLARATIONS = """
from django.contrib.auth.models import Group

import django_mcp as mcp


@mcp.tool
def add(request, a: int, b: int) -> int:
    return a + b


@mcp.register(Group)
class Groups(mcp.ModelResource):
    fields = ["name"]
"""
OURS = "django_mcp.verifiers.PersonalAccessTokens"


class Project(NamedTuple):
    """A generated project: its apps besides Django's, and the project it is compared with."""

    apps: Sequence[str] = ()
    urls: Sequence[str] = ()
    verifiers: Sequence[str] = ()
    compared_with: str = ""


DJANGO, TOOLKIT, APP = "Django", "Django and django-oauth-toolkit", "django_mcp"
PROJECTS = {
    DJANGO: Project(),
    APP: Project(["django_mcp"], (), [OURS], DJANGO),
    "django_mcp, a tool and a resource": Project(["django_mcp", "shop"], (), [OURS], DJANGO),
    TOOLKIT: Project(["oauth2_provider"], ["oauth2_provider.urls"], (), DJANGO),
    "django_mcp and django_mcp.oauth": Project(
        ["oauth2_provider", "django_mcp", "django_mcp.oauth"], ["django_mcp.oauth.urls"],
        [OURS, "django_mcp.oauth.verifier.OAuthTokens"], TOOLKIT,
    ),
}  # fmt: skip


class Usage(NamedTuple):
    """Seconds of the processor, and MiB of memory at most."""

    seconds: float
    mib: float


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.startup")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--short", action="store_true", help="5 rounds")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), 5 if given.short else given.rounds)
    for name, usages in found.items():
        other = PROJECTS[name].compared_with
        more = added(usages, found[other]) if other else None
        beside = f"  {more.seconds:+.3f} s {more.mib:+5.1f} MiB  to {other}" if more else ""
        print(f"{name:>34}{median(usages).seconds:8.3f} s{median(usages).mib:6.1f} MiB{beside}")
    app = added(found[APP], found[DJANGO])
    return 0 if app.seconds <= MOST_SECONDS and app.mib <= MOST_MIB else UNMET


def measured(folder: Path, rounds: int) -> dict[str, list[Usage]]:
    """Return the usage of each project's processes, which take turns."""
    for name, project in PROJECTS.items():
        write(folder / name, project)
        check(folder / name)  # compiles the bytecode
    found: dict[str, list[Usage]] = {name: [] for name in PROJECTS}
    for _ in range(rounds):
        for name, usages in found.items():
            usages.append(check(folder / name))
    return found


def write(folder: Path, project: Project) -> None:
    files = {
        "settings.py": SETTINGS.format(apps=[*project.apps], verifiers=[*project.verifiers]),
        "urls.py": URLS.format(urls=[*project.urls]),
        "shop/__init__.py": "",
        "shop/mcp.py": DECLARATIONS,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def check(folder: Path) -> Usage:
    """Run `manage.py check` and return what it used. Raise ``RuntimeError`` if it fails."""
    environ = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "settings",
        "PYTHONPYCACHEPREFIX": str(folder.parent / "bytecode"),
    }  # fmt: skip
    command = [sys.executable, "-m", "django", "check"]
    process = subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # `Popen` must not wait for it again
    if process.returncode:
        raise RuntimeError(f"`check` failed in {folder.name}: {subprocess.list2cmdline(command)}")
    return Usage(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def median(usages: Sequence[Usage]) -> Usage:
    return Usage(*map(statistics.median, zip(*usages, strict=True)))


def added(some: Sequence[Usage], others: Sequence[Usage]) -> Usage:
    """Return the median of the differences within each round."""
    return median(
        [Usage(a.seconds - b.seconds, a.mib - b.mib) for a, b in zip(some, others, strict=True)]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
