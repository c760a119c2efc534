"""The page on HTTP: a project with its code is served and answers as described."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.ports import free_port

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/http.md"
REFERENCE = ROOT / "docs/reference/http.md"
TIMEOUT_SECONDS = 60


class Shop:
    """A new project with the files of the page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        self.environment.pop("DJANGO_SETTINGS_MODULE", None)
        self.run("-m", "django", "startproject", "shop", ".")
        self.run("manage.py", "startapp", "billing")
        files = {code.splitlines()[0].removeprefix("# "): code for code in reversed(self.shown())}
        for name in ("shop/asgi.py", "billing/mcp.py", "connect.py"):
            (folder / name).write_text(files[name], "utf-8")
        with (folder / "shop/settings.py").open("a") as settings:
            settings.write(files["settings.py"])

    @staticmethod
    def shown() -> list[str]:
        return [code for code in blocks(PAGE, "python") if code.startswith("# ")]

    def run(self, *arguments: str, **more: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=self.environment | more, text=True,
            capture_output=True, timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    made = Shop(tmp_path_factory.mktemp("shop"))
    made.run("manage.py", "migrate")
    made.run("manage.py", "migrate", "--database", "mcp")
    made.run(
        *("manage.py", "createsuperuser", "--username", "alice", "--email", "", "--noinput"),
        DJANGO_SUPERUSER_PASSWORD="secret",
    )
    return made


@pytest.fixture(scope="module")
def token(shop: Shop) -> str:
    return shop.run("manage.py", "mcp_token", "create", "--user", "alice", "--name", "my laptop")


@pytest.fixture(scope="module")
def port(shop: Shop) -> Iterator[int]:
    """The port at which the page's ``daphne`` command serves the project."""
    number = free_port()
    line = re.search(r"^ {4}(daphne .*)$", PAGE.read_text("utf-8"), re.M)
    assert line is not None
    command = shlex.split(line[1].replace("8000", str(number)))
    served = subprocess.Popen(
        [sys.executable, "-m", *command], cwd=shop.folder, env=shop.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        last = time.monotonic() + TIMEOUT_SECONDS
        while not answers(number):
            assert served.poll() is None and time.monotonic() < last
            time.sleep(0.05)
        yield number
    finally:
        served.terminate()
        assert served.wait(TIMEOUT_SECONDS) == 0


def curl_request() -> tuple[dict[str, str], str]:
    """Return the headers and the body of the command on the page."""
    text = PAGE.read_text("utf-8")
    start = text.index("    curl ")
    words = shlex.split(text[start : text.index("\n\n", start)])
    pairs = list(zip(words, words[1:], strict=False))
    headers = dict(value.split(": ", 1) for option, value in pairs if option == "-H")
    (body,) = [value for option, value in pairs if option == "-d"]
    return headers, body


def test_curl_command_is_answered(port: int, token: str) -> None:
    headers, body = curl_request()
    headers = {name: value.replace("$TOKEN", token) for name, value in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    connection.request("POST", "/mcp", body, headers)
    response = connection.getresponse()
    said = response.read().decode()
    connection.close()
    assert response.status == 200, said
    told = re.search(r'answers with `("text":"\w+")`', PAGE.read_text("utf-8"))
    assert told is not None and told[1] in said
    assert json.loads(said)["id"] == 1


def test_official_client_connects(shop: Shop, port: int, token: str) -> None:
    connect = (shop.folder / "connect.py").read_text("utf-8").replace("8000", str(port))
    (shop.folder / "connect_here.py").write_text(connect, "utf-8")
    said = shop.run("connect_here.py", TOKEN=token).splitlines()
    assert "whoami" in said[0] and said[1:] == ["alice"]


def test_request_without_a_token_is_rejected(port: int) -> None:
    headers, body = curl_request()
    del headers["Authorization"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    connection.request("POST", "/mcp", body, headers)
    assert connection.getresponse().status == 401
    connection.close()


def test_system_checks_pass(shop: Shop) -> None:
    shop.run("manage.py", "check", "--tag", "django_mcp", "--fail-level", "WARNING")


def test_system_checks_pass_with_the_other_settings(shop: Shop) -> None:
    served, *others = (
        code for code in blocks(PAGE, "python") if "settings.py" in code or "CSRF" in code
    )
    assert "INSTALLED_APPS" in served and len(others) == 2
    path = shop.folder / "shop/settings_elsewhere.py"
    path.write_text("\n".join(["from shop.settings import *", *others]), "utf-8")
    shop.run(
        *("manage.py", "check", "--tag", "django_mcp", "--fail-level", "WARNING"),
        DJANGO_SETTINGS_MODULE="shop.settings_elsewhere",
    )


def test_every_status_is_in_the_reference() -> None:
    sources = (ROOT / "django_mcp/transports/http").glob("*.py")
    text = "".join(source.read_text("utf-8") for source in sources)
    given = set(re.findall(r"(?:RequestRejected|json|text)\((\d{3})\b", text))
    lines = REFERENCE.read_text("utf-8").splitlines()
    rows = [line for line in lines if re.match(r"\| \d{3}", line)]
    told = {status for row in rows for status in re.findall(r"\d{3}", row.split("|")[1])}
    assert given <= told and len(given) > 10
