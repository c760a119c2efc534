"""
``manage.py mcp_doctor``: find what is wrong with this project as an MCP server.

Each check runs even if another one fails. Nothing is changed, and no token is printed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit

from django.core.management.base import CommandError, CommandParser

from ...conf import settings
from ...declarations.server import Server, address
from .. import arguments
from ..doctor import installation
from ..doctor.findings import Finding, Findings, ProbeClient, Unreachable, note, survived
from ..doctor.live import LiveChecks
from ..output import HelpfulCommand, printable

VARIABLE = "DJANGO_MCP_TOKEN"
DEFAULT_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS = 10.0, 300.0
BAD = ("problem", "warning")
MARKS = {"ok": "ok", "note": "-", "problem": "PROBLEM", "warning": "warning"}


class Command(HelpfulCommand):
    help = (
        "Find out why clients cannot connect. Run the checks, test installed packages and "
        "databases, and send a running server the requests of each kind of client. The exit "
        "code is 1 if there is a problem."
    )
    examples = [
        ("", "check this project, and its server if it is running"),
        ("https://shop.example/mcp --token mcp_...", "check the server at this URL"),
        ("--format json", "write JSON for other programs"),
    ]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "url", metavar="URL", nargs="?", help="URL of a running server (default: the project's)"
        )
        arguments.add_server(parser)
        parser.add_argument(
            "--token", metavar="TOKEN",
            help=f"access token for the requests (default: environment variable {VARIABLE})",
        )  # fmt: skip
        parser.add_argument(
            "--user", metavar="NAME", help="user for the checks that need no running server"
        )
        parser.add_argument(
            "--seconds", metavar="N", type=seconds, default=DEFAULT_TIMEOUT_SECONDS,
            help=f"timeout of a response in seconds (default: {DEFAULT_TIMEOUT_SECONDS:g})",
        )  # fmt: skip
        parser.add_argument("--format", choices=("text", "json"), default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        server = arguments.find_server(options["server"])
        user = arguments.find_user(options["user"]) if options["user"] else None
        token, url = given(options["token"]), sane(options["url"])
        found = all_of(server, user, url, token, options["seconds"])
        levels = (self._json if options["format"] == "json" else self._text)(found)
        if "problem" in levels:
            raise SystemExit(1)

    def _json(self, found: Findings) -> set[str]:
        listed = [asdict(one) for one in found]
        levels = {one["level"] for one in listed}
        told = {"ok": "problem" not in levels, "findings": listed}
        self.show(json.dumps(told, indent=2, ensure_ascii=False))
        return levels

    def _text(self, found: Findings) -> set[str]:
        part, counts = None, dict.fromkeys(MARKS, 0)
        for one in found:
            if one.part != part:
                part = one.part
                self.stdout.write(self.style.MIGRATE_HEADING(part[:1].upper() + part[1:]))
            counts[one.level] += 1
            self._line(one)
        told = [f"{n} {level}{'s' * (n > 1)}" for level, n in counts.items() if level in BAD and n]
        self.stdout.write(f"\n{', '.join(told) or 'All is well'}.")
        return {level for level, count in counts.items() if count}

    def _line(self, one: Finding) -> None:
        styles = {
            "ok": self.style.SUCCESS, "warning": self.style.WARNING, "problem": self.style.ERROR,
        }  # fmt: skip
        style = styles.get(one.level, str)
        mark = style(MARKS[one.level].ljust(7))
        self.stdout.write(f"  {mark}  {printable(' '.join(one.words.split()))}")
        if one.hint:
            self.stdout.write(f"  {'':7}    {printable(' '.join(one.hint.split()))}")


def all_of(
    server: Server, user: Any, url: str | None, token: str | None, seconds: float
) -> Iterator[Finding]:
    name = user.get_username() if user is not None else None
    looks: list[tuple[str, Callable[[], Findings]]] = [
        ("the checks", installation.system_checks),
        ("what is installed", installation.versions),
        ("what is installed", installation.asgi_servers),
        ("the application", installation.application),
        ("the address", installation.address),
        ("the database", installation.databases),
        ("between workers", installation.workers),
        ("in this process", lambda: installation.declared(server, user)),
        ("over stdio", lambda: installation.stdio(server, name)),
    ]
    for part, look in looks:
        for one in survived(look, part[:1].upper() + part[1:]):
            yield replace(one, part=part)
    for one in over_http(server, url, token, seconds):
        yield replace(one, part=f"over HTTP: {one.part}".rstrip(": "))


def over_http(server: Server, url: str | None, token: str | None, seconds: float) -> Findings:
    """Check the server at the URL.

    Without a URL, check the project's own if a server answers there.
    """
    if url is None:
        url = address(server)
        if "URL" not in settings.given():
            yield note("No running server is checked.", "To check one: mcp_doctor URL.")
            return
        try:
            ProbeClient(url, min(seconds, 3)).ask("OPTIONS", {})
        except Unreachable as unreachable:
            yield note(
                f"No running server is checked: {unreachable}",
                "Start it, and run mcp_doctor again.",
            )
            return
    yield note(url)
    yield from LiveChecks(url, token, seconds).findings()


# Options.


def seconds(text: str) -> float:
    number = float(text)
    if not 0 < number <= MAX_TIMEOUT_SECONDS:
        raise ValueError(text)
    return number


def given(token: str | None) -> str | None:
    """Return the token of the option or of the environment. Raise ``CommandError``."""
    return arguments.checked_token(token or os.environ.get(VARIABLE) or None)


def sane(url: str | None) -> str | None:
    """Return the URL. Raise ``CommandError`` if no server can have it."""
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        raise CommandError(
            "URL must be a full URL, such as https://shop.example/mcp.", returncode=2
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise CommandError(
            "URL must have only scheme, host and path. Give a token with --token.", returncode=2
        )
    return url
