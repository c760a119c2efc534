"""``manage.py mcp_server_json``: write the file with which a server is listed in the MCP registry.

The file is ``server.json``, schema 2025-12-11. It contains nothing secret: the URL of the server,
what it says about itself, and whether clients need a token.

The registry's own rules are stricter than its schema: https URLs only, no host of this machine, and
one certain version. ``entry`` returns every rule that the server does not keep.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.management.base import CommandError, CommandParser

from ...declarations.content import Icon
from ...declarations.server import Server, address, sse_address
from ...web.clients import is_open, short_name, signs_in
from .. import arguments
from ..output import HelpfulCommand

JSON = dict[str, Any]
SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
MAX_REGISTRY_TEXT_LENGTH = 100  # of a title or a description
MAX_REGISTRY_NAME_LENGTH, MAX_VERSION_LENGTH, MAX_ICON_URL_LENGTH = 200, 255, 255
_PART = r"[A-Za-z0-9]([A-Za-z0-9{}-]*[A-Za-z0-9])"
NAME = re.compile(rf"{_PART.format('.')}/{_PART.format('._')}\Z")
# "latest", and ranges such as ^1.2, >=1, 1.x, 1.* and "1 - 2".
VERSION_RANGE = re.compile(r"latest\Z|[\^~<>=]|.*\|\||.*\s-\s|.*(^|\.)[xX*](\.|-|\Z)")
ICON_TYPES = ("image/png", "image/jpeg", "image/jpg", "image/svg+xml", "image/webp")
REPOSITORY = re.compile(
    r"https://((?P<github>github\.com)/[\w.-]+/[\w.-]+|gitlab\.com/[\w.-]+(/[\w.-]+)+)/?\Z"
)
TOKEN_INPUT = {
    "description": "An access token for this server",
    "isRequired": True,
    "isSecret": True,
}


@dataclass(frozen=True)
class RegistryEntry:
    """``content`` is the file. It is valid if there are no ``problems``.

    ``notes`` say what of the server is not in it.
    """

    content: JSON
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def entry(
    server: Server,
    *,
    name: str | None = None,
    description: str | None = None,
    repository: str | None = None,
) -> RegistryEntry:
    """Return the entry of ``server``. The catalog of the server must be resolved.

    ``name`` is by default made of the host in ``DJANGO_MCP["URL"]`` and the server's name.
    ``description`` replaces the server's own, which may be too long.
    """
    title = str(server.title or "").strip()
    text = str(description or server.description or "").strip()
    icons = [icon for icon in server.icons if _is_registry_icon(icon)]
    optional = {
        "title": title,
        "websiteUrl": server.website,
        "icons": [icon.write() for icon in icons],
        "repository": repository and _repository(repository),
    }
    content: JSON = {"$schema": SCHEMA, "name": name or _default_name(server), "description": text}
    content |= {"version": server.version} | {key: one for key, one in optional.items() if one}
    content["remotes"] = [*_remotes(server)]
    notes = []
    if len(icons) < len(server.icons):
        notes.append("Icons without an https URL, or of another type than an image, are left out.")
    return RegistryEntry(content, [*_problems(content, bool(name), repository)], notes)


def _default_name(server: Server) -> str:
    """Return the host in reverse order and the name of the server: "example.shop/shop"."""
    host = _host(address(server))
    with suppress(UnicodeError):  # _problems reports the name
        host = host.encode("idna").decode("ascii")
    return f"{'.'.join(reversed(host.split('.')))}/{short_name(server)}"


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _remotes(server: Server) -> Iterator[JSON]:
    needs_token = not (is_open(server) or signs_in(server))
    header = {"name": "Authorization", "value": "Bearer {token}", "isRequired": True}
    header |= {"isSecret": True, "variables": {"token": TOKEN_INPUT}}
    headers: JSON = {"headers": [header]} if needs_token else {}
    yield {"type": "streamable-http", "url": address(server)} | headers
    if (sse := sse_address(server)) is not None:
        yield {"type": "sse", "url": sse} | headers


def _repository(url: str) -> JSON:
    found = REPOSITORY.match(url)
    return {"url": url, "source": "github" if found and found["github"] else "gitlab"}


def _is_registry_icon(icon: Icon) -> bool:
    written = icon.write()
    url, kind = str(written.get("src", "")), written.get("mimeType")
    is_short = url.startswith("https://") and len(url) <= MAX_ICON_URL_LENGTH
    return is_short and kind in (None, *ICON_TYPES)


def _problems(content: JSON, is_named: bool, repository: str | None) -> Iterator[str]:
    """Yield what the registry would reject, each with what to do."""
    yield from _url_problems(content["remotes"][0]["url"], is_named)
    name, version = content["name"], content["version"]
    if len(name) > MAX_REGISTRY_NAME_LENGTH or not NAME.match(name):
        yield (
            f"The name {name!r} is not a namespace, a slash and a name. Pass --name, such as "
            "--name com.example/shop or --name io.github.you/shop."
        )
    if not content["description"]:
        yield "The server has no description. Set mcp.server.description, or pass --description."
    for member in ("title", "description"):
        length = len(content.get(member, ""))
        if length > MAX_REGISTRY_TEXT_LENGTH:
            remedy = "Pass --description" if member == "description" else "Shorten it"
            yield (
                f"The {member} has {length} characters. At most {MAX_REGISTRY_TEXT_LENGTH} are "
                f"allowed. {remedy}."
            )
    if not version or len(version) > MAX_VERSION_LENGTH or VERSION_RANGE.match(version):
        yield (
            f"The version {version!r} is not one version. Set mcp.server.version to a text such "
            'as "1.0.2".'
        )
    website = content.get("websiteUrl")
    if website and not website.startswith("https://"):
        yield f"The website {website!r} has no https URL. Set mcp.server.website to one."
    if repository and not REPOSITORY.match(repository):
        yield (
            f"The repository {repository!r} is not one of GitHub or GitLab. Write "
            "https://github.com/OWNER/NAME."
        )


def _url_problems(url: str, is_named: bool) -> Iterator[str]:
    """Yield why the registry would not accept ``url`` as the address of a public server."""
    host = _host(url)
    if host == "localhost" or host.endswith(".localhost") or _is_private_address(host):
        yield (
            f"The server's URL is {url}, which other machines cannot reach. Set "
            'DJANGO_MCP["URL"] to the public origin, such as "https://shop.example".'
        )
    elif not url.startswith("https://"):
        yield f'The server\'s URL is {url}, without https. Set DJANGO_MCP["URL"] to an https URL.'
    elif not is_named and ("." not in host or _is_address(host)):
        yield f"The host {host!r} is not a domain, so the entry needs a name. Pass --name."


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_private_address(host: str) -> bool:
    return _is_address(host) and not ipaddress.ip_address(host).is_global


class Command(HelpfulCommand):
    help = "Write server.json, the entry of a server in the MCP registry."
    examples = [
        ("", "show the entry"),
        ("--output server.json", "write the file, for mcp-publisher publish"),
        ("--name io.github.you/shop", "for an account of GitHub instead of a domain"),
    ]

    def add_arguments(self, parser: CommandParser) -> None:
        arguments.add_server(parser)
        parser.add_argument(
            "--name",
            metavar="NAMESPACE/NAME",
            help="name in the registry (default: the host of the server in reverse order and the "
            "name of the server)",
        )
        parser.add_argument(
            "--description",
            metavar="TEXT",
            help="description of the server in the registry, at most 100 characters (default: the "
            "server's description)",
        )
        parser.add_argument(
            "--repository", metavar="URL", help="URL of the source code on GitHub or GitLab"
        )
        parser.add_argument("--output", metavar="FILE", type=Path, help="write to this file")

    def handle(self, *args: Any, output: Path | None, **options: Any) -> None:
        server = arguments.server_with_declarations(options["server"])
        made = entry(
            server,
            name=options["name"],
            description=options["description"],
            repository=options["repository"],
        )
        if made.problems:
            lines = "\n".join(f"- {problem}" for problem in made.problems)
            raise CommandError(f"The registry would reject this entry:\n{lines}")
        text = json.dumps(made.content, indent=2, ensure_ascii=False) + "\n"
        for note in made.notes:
            self.note(note)
        if output is None:
            self.show(text.rstrip("\n"))
            return
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{output}: {error.strerror}") from None
        self.note(f"Written to {output}.")
