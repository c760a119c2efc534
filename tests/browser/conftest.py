"""A headless Chromium that visits the atlas, served by a real server.

Nothing is downloaded: the installed browser is used. Without one the tests are skipped with the
reason, or fail if they are required.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.servers import ROOT, Served

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip
APPLICATION = "example_project.asgi:application"
ORIGIN = "https://atlas.example"  # as the settings say; the visitors come another way
SECONDS = 20


@pytest.fixture(scope="session")
def program() -> str:
    """The path of the browser."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if find_spec("playwright") is None:
        absent("playwright is not installed: pip install playwright")
    if found is None:
        absent(f"none of {', '.join(NAMES)} is installed: apt-get install chromium")
    return str(found)


def absent(why: str) -> None:
    (pytest.fail if os.environ.get("TESTS_REQUIRED") else pytest.skip)(why)


class Atlas:
    """The example project, served with DEBUG off and without static files."""

    def __init__(self, folder: Path) -> None:
        self.environ = {
            "ATLAS_DATABASE": str(folder / "atlas.sqlite3"),
            "ATLAS_URL": ORIGIN, "ATLAS_DEBUG": "0",
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
        }  # fmt: skip
        self.folder = folder
        self.passwords = json.loads(self.manage("prepare_demo", "--largest=300"))["passwords"]

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT, env=os.environ | self.environ, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def serve(self) -> Served:
        return Served("uvicorn", self.folder, application=APPLICATION, **self.environ)


@pytest.fixture(scope="session")
def atlas(program: str, tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    return Atlas(tmp_path_factory.mktemp("atlas"))


@pytest.fixture(scope="session")
def address(atlas: Atlas) -> Iterator[str]:
    """The URL of the endpoint."""
    with atlas.serve() as server:
        yield f"http://127.0.0.1:{server.port}/mcp"


@pytest.fixture(scope="session")
def chromium(program: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def signed_in(chromium: Any, address: str, atlas: Atlas) -> Callable[[str], Any]:
    """Return the browser state of a signed-in user."""

    @cache
    def state(user: str) -> Any:
        with chromium.new_context() as context:
            sign_in(context.new_page(), address, user, atlas.passwords[user])
            return context.storage_state()

    return state


@pytest.fixture
def visit(
    chromium: Any, address: str, signed_in: Callable[[str], Any]
) -> Iterator[Callable[..., Any]]:
    """Return a function that opens the page: ``visit("alice", width=360, color_scheme="dark")``.

    The test fails at console messages, scripts, failed requests and requests to other hosts.
    """
    problems: list[str] = []
    with ExitStack() as stack:

        def opened(
            user: str | None = None, width: int = 1280, height: int = 900, **options: Any
        ) -> Any:
            size = {"width": width, "height": height}
            kept = signed_in(user) if user else None
            context = chromium.new_context(viewport=size, storage_state=kept, **options)
            stack.enter_context(context).set_default_timeout(SECONDS * 1000)
            page = context.new_page()
            watch(page, address, problems)
            page.goto(address)
            return page

        yield opened
    assert not problems


def sign_in(page: Any, address: str, user: str, password: str) -> None:
    """Sign in as a user does, starting at the page and returning to it."""
    page.goto(address)
    page.get_by_role("link", name="Sign in").click()
    page.get_by_label("Username").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(address)


def watch(page: Any, address: str, problems: list[str]) -> None:
    """Record errors and unexpected requests."""
    own = address.removesuffix("/mcp")
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("requestfailed", lambda request: problems.append(f"failed: {request.url[:200]}"))

    def requested(request: Any) -> None:
        if not request.url.startswith((own, "data:")):
            problems.append(f"elsewhere: {request.url[:200]}")

    page.on("request", requested)
