"""The shop of the tour, served by a real server, and a client of it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.restarts.processes import Client
from tests.servers import ROOT, Served, environment
from tools.ports import free_port

SETTINGS = "tests.browser.tour.settings"
APPLICATION = "tests.browser.tour.asgi:application"
PASSWORD = "tour"
PEOPLE = f"""
from django.contrib.auth.models import Group, Permission, User
from tests.browser.tour.models import Order
support = Group.objects.create(name="Support")
support.permissions.set(Permission.objects.filter(codename__in=["refund_order", "add_token"]))
User.objects.create_superuser("root", password={PASSWORD!r})
alice = User.objects.create_user("alice", password={PASSWORD!r}, is_staff=True)
alice.groups.add(support)
Order.objects.create(number="A-1", total="12.50")
"""


class Shop:
    """The project and its running server. ``admin`` is the URL of the admin."""

    def __init__(self, folder: Path) -> None:
        self.folder, port = folder, free_port()
        self.address = f"http://127.0.0.1:{port}"
        self._environ = {"DJANGO_SETTINGS_MODULE": SETTINGS, "TOUR_URL": self.address}
        self.manage("migrate", "--run-syncdb", "-v0")
        self.manage("migrate", "--database", "mcp", "-v0")
        self.manage("shell", "-v0", "-c", PEOPLE)
        self.server = Served("uvicorn", folder, application=APPLICATION, port=port, **self._environ)
        self.admin = f"{self.address}/admin/"

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "django", *arguments], cwd=ROOT,
            env=environment(self.folder, **self._environ), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def connect(self, token: str) -> Client:
        return Client(self.server.port, token=token)

    def close(self) -> None:
        self.server.kill()


class Background:
    """A call that runs in a thread of the test. ``text()`` waits for its result."""

    def __init__(self, client: Client, tool: str, **arguments: Any) -> None:
        self._text = ""
        run = threading.Thread(target=self._run, args=(client, tool, arguments), daemon=True)
        self._thread = run
        self._thread.start()

    def _run(self, client: Client, tool: str, arguments: dict[str, Any]) -> None:
        # The server may be stopped before the end of the call.
        with suppress(OSError, HTTPException, KeyError):
            self._text = client.call(tool, **arguments).tool_text()

    def text(self) -> str:
        self._thread.join(60)
        return self._text


class ListChanges:
    """Counts the notifications of a client that its list of tools has changed."""

    def __init__(self, client: Client) -> None:
        self.count = 0
        self._response = client.get()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def expect_more(self) -> Callable[[], bool]:
        """Return a function that tells whether there were more notifications since now."""
        before = self.count
        return lambda: self.count > before

    def _listen(self) -> None:
        # The test closes the connection while this thread reads it.
        with suppress(OSError, ValueError, AttributeError):
            for message in self._response:
                if message.get("method") == "notifications/tools/list_changed":
                    self.count += 1


def tools_of(client: Client) -> list[str]:
    """Return the names of the tools that a client sees."""
    client.count += 1
    answer = client.post({"jsonrpc": "2.0", "id": client.count, "method": "tools/list"})
    return [tool["name"] for tool in answer.json()["result"]["tools"]]
