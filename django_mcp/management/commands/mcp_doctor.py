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
from ..doctor.findings import Finding, Findings, ProbeClient, Unreachable, note, run_safely
from ..doctor.live import LiveChecks
from ..output import HelpfulCommand, printable

VARIABLE = "DJANGO_MCP_TOKEN"
DEFAULT_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS = 10.0, 300.0
COUNTED_LEVELS = ("problem", "warning")  # in the last line of the output
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
            "--timeout", metavar="SECONDS", type=seconds, default=DEFAULT_TIMEOUT_SECONDS,
            help=f"seconds to wait for each response (default: {DEFAULT_TIMEOUT_SECONDS:g})",
        )  # fmt: skip
        parser.add_argument(
            "--format", choices=("text", "json"), default="text", help="(default: text)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        server = arguments.find_server(options["server"])
        user = arguments.find_user(options["user"]) if options["user"] else None
        token, url = token_from(options["token"]), validated_url(options["url"])
        findings = run_checks(server, user, url, token, options["timeout"])
        write = self._write_json if options["format"] == "json" else self._write_text
        levels = write(findings)
        if "problem" in levels:
            raise SystemExit(1)

    def _write_json(self, findings: Findings) -> set[str]:
        """Write the findings and return their levels."""
        listed = [asdict(one) for one in findings]
        levels = {one["level"] for one in listed}
        report = {"ok": "problem" not in levels, "findings": listed}
        self.show(json.dumps(report, indent=2, ensure_ascii=False))
        return levels

    def _write_text(self, findings: Findings) -> set[str]:
        """Write the findings and return their levels."""
        part, counts = None, dict.fromkeys(MARKS, 0)
        for one in findings:
            if one.part != part:
                part = one.part
                self.stdout.write(self.style.MIGRATE_HEADING(part[:1].upper() + part[1:]))
            counts[one.level] += 1
            self._write_finding(one)
        summary = [
            f"{number} {level}{'s' * (number > 1)}"
            for level, number in counts.items()
            if level in COUNTED_LEVELS and number
        ]
        self.stdout.write(f"\n{', '.join(summary) or 'No problems found'}.")
        return {level for level, count in counts.items() if count}

    def _write_finding(self, one: Finding) -> None:
        styles = {
            "ok": self.style.SUCCESS, "warning": self.style.WARNING, "problem": self.style.ERROR,
        }  # fmt: skip
        style = styles.get(one.level, str)
        mark = style(MARKS[one.level].ljust(7))
        self.stdout.write(f"  {mark}  {printable(' '.join(one.words.split()))}")
        if one.hint:
            self.stdout.write(f"  {'':7}    {printable(' '.join(one.hint.split()))}")


def run_checks(
    server: Server, user: Any, url: str | None, token: str | None, seconds: float
) -> Iterator[Finding]:
    """Run all checks, and yield the findings with the part of the report they belong to."""
    name = user.get_username() if user is not None else None
    checks: list[tuple[str, Callable[[], Findings]]] = [
        ("the checks", installation.system_checks),
        ("what is installed", installation.versions),
        ("what is installed", installation.asgi_servers),
        ("the application", installation.application),
        ("the address", installation.address),
        ("the database", installation.databases),
        ("between workers", installation.workers),
        ("in this process", lambda: installation.list_tools(server, user)),
        ("over stdio", lambda: installation.stdio(server, name)),
    ]
    for part, check in checks:
        for one in run_safely(check, part[:1].upper() + part[1:]):
            yield replace(one, part=part)
    for one in check_http(server, url, token, seconds):
        yield replace(one, part=f"over HTTP: {one.part}".rstrip(": "))


def check_http(server: Server, url: str | None, token: str | None, seconds: float) -> Findings:
    """Check the server at the URL.

    Without a URL, check the project's own if a server answers there.
    """
    if url is None:
        url = address(server)
        if "URL" not in settings.given():
            yield note(
                "HTTP checks skipped: DJANGO_MCP['URL'] is not set.",
                "Set it, or run mcp_doctor with the URL of a running server.",
            )
            return
        try:
            ProbeClient(url, min(seconds, 3)).ask("OPTIONS", {})
        except Unreachable as unreachable:
            yield note(
                f"HTTP checks skipped: {unreachable}", "Start the server and run mcp_doctor again."
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


def token_from(option: str | None) -> str | None:
    """Return the token of the option or of the environment. Raise ``CommandError``."""
    return arguments.checked_token(option or os.environ.get(VARIABLE) or None)


def validated_url(url: str | None) -> str | None:
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
            f"Invalid URL {url!r}. Use a URL such as https://shop.example/mcp.", returncode=2
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise CommandError(
            "The URL must not contain credentials, a query or a fragment. "
            "Pass the token with --token.",
            returncode=2,
        )
    return url
