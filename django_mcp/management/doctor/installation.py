"""
What is installed, and how the project is put together: what needs no request to be seen.

Rule: it looks and changes nothing; the one thing it runs is the project's own ASGI
application, with a request that anybody may send.
"""

from __future__ import annotations

import asyncio
import platform
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

import django
from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import run_checks
from django.http.request import validate_host
from django.utils.module_loading import import_string

from ...checks import check_deployment
from ...conf import settings
from ...declare.servers import Server, servers
from ...transports.http.guards import allowed_hosts
from .findings import Finding, Findings, note, of_checks, ok, problem, warning
from .messages import DISCOVER, around, is_answer

PACKAGE = "django_mcp"
SERVERS = ("daphne", "uvicorn", "granian", "hypercorn")
SECONDS = 10
MOUNT = "In asgi.py: application = mount(get_asgi_application()), from django_mcp.routing."


def system_checks() -> Findings:
    """As ``manage.py check`` finds, and ``check --deploy`` where it is no development."""
    found = list(run_checks(include_deployment_checks=not django_settings.DEBUG))
    if django_settings.DEBUG:
        found += check_deployment()  # what of it matters here too
    shown = list(of_checks(found))
    yield from shown or [ok("The system checks find nothing.")]


def versions() -> Findings:
    yield note(f"Python {platform.python_version()}, Django {django.get_version()}")
    owners = sorted(set(metadata.packages_distributions().get(PACKAGE, [])))
    told = ", ".join(f"{name} {metadata.version(name)}" for name in owners)
    if len(owners) > 1:
        yield problem(
            f"Several distributions own the package {PACKAGE}, and the last one wins: {told}.",
            "Uninstall all of them, and install the one you want again.",
        )
    else:
        yield note(f"{told or PACKAGE}, channels {metadata.version('channels')}")


def asgi_servers() -> Findings:
    found = [f"{name} {version}" for name in SERVERS if (version := _version(name))]
    if found:
        yield ok(f"ASGI servers: {', '.join(found)}")
    else:
        yield problem(
            "No ASGI server is installed: over HTTP nothing can be served.",
            f"Install one of {', '.join(SERVERS)}.",
        )
    if django_settings.DEBUG and not apps.is_installed("daphne"):
        yield warning(
            "manage.py runserver speaks WSGI, which has no MCP.",
            'Put "daphne" into INSTALLED_APPS, above "django.contrib.staticfiles".',
        )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# The application.


def application() -> Findings:
    """ASGI_APPLICATION, and whether every server is in it."""
    path = getattr(django_settings, "ASGI_APPLICATION", None)
    if not path:
        yield warning(
            "ASGI_APPLICATION is not set, so it is not known what is served.",
            "Set it to the path of what asgi.py makes: daphne's runserver needs it.",
        )
        return
    try:
        found = import_string(path)
    except Exception as error:  # the project's code runs
        yield problem(
            f"ASGI_APPLICATION, {path}, cannot be imported: {type(error).__name__}: {error}",
            "Start with this error: no ASGI server can start.",
        )
        return
    for server in servers():
        if server is servers()[0] or not server.is_empty:
            yield asyncio.run(_mounted(found, server, path))


async def _mounted(application: Any, server: Server, path: str) -> Finding:
    """Whether a request to the server's path comes to the server."""
    where = f"The server {server.name!r}, /{server.path},"
    try:
        status, body = await _asked(application, _scope(server))
    except Exception as error:  # whatever else is in there
        return problem(f"{where} breaks in {path}: {type(error).__name__}: {error}", MOUNT)
    if status in (200, 401) and is_answer(body):
        return ok(f"{where} is in {path}.")
    return problem(f"{where} is not in {path}: something else answers there.", MOUNT)


async def _asked(application: Any, scope: dict[str, Any]) -> tuple[int, bytes]:
    """The status and the body of an answer, when the application is done."""
    coming: list[dict[str, Any]] = [{"type": "http.request", "body": DISCOVER}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not coming:
            await asyncio.Event().wait()  # the client stays
        return coming.pop()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async with asyncio.timeout(SECONDS):
        await application(scope, receive, send)
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent)


def _scope(server: Server) -> dict[str, Any]:
    origin = urlsplit(settings.URL)
    host = next((name for name in allowed_hosts() if "*" not in name), "localhost")
    headers = around() | {"Host": host.removeprefix(".")}
    path = f"{(django_settings.FORCE_SCRIPT_NAME or '').rstrip('/')}/{server.path}"
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "scheme": origin.scheme or "http", "path": path, "raw_path": path.encode(),
        "root_path": "", "query_string": b"", "client": ["127.0.0.1", 0],
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip


# The address.


def address() -> Findings:
    """The public origin: whether it is said, allowed and safe."""
    origin = urlsplit(settings.URL)
    host = origin.hostname or ""
    if "URL" not in settings.given():
        level = note if django_settings.DEBUG else warning
        yield level(
            f'DJANGO_MCP["URL"] is not set: clients are told {settings.URL}.',
            'Set it to the public origin, such as "https://shop.example".',
        )
        return
    if not validate_host(host, list(allowed_hosts())):
        yield problem(
            f"The host of DJANGO_MCP['URL'], {host}, is not in ALLOWED_HOSTS: "
            "every request to it is answered 400.",
            f"Add {host!r} to ALLOWED_HOSTS.",
        )
    elif origin.scheme == "http" and not is_local(host):
        yield warning(
            f"{settings.URL} is not https: access tokens go through the net in the clear.",
            "Serve it through https.",
        )
    else:
        yield ok(f"The public origin is {settings.URL}.")


def is_local(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost") or host in ("127.0.0.1", "::1")
