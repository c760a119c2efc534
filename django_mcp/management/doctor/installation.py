"""
Checks of ``mcp_doctor`` on this machine: installation, ASGI application, databases and wake-ups.

They need no running server and write nothing. ``application`` sends one request to the project's
ASGI application, in this process. ``workers`` sends a wake-up to itself over the channel layer or
LISTEN and NOTIFY, to see whether it arrives. Other workers ignore the message. If a database does
not answer, only ``databases`` reports it. ``list_tools`` lists tools in every revision, and
``stdio`` starts ``mcp_stdio`` in a subprocess, as a client does.
"""

from __future__ import annotations

import asyncio
import json
import platform
import subprocess
from collections.abc import Collection
from contextlib import suppress
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

import django
from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import run_checks
from django.db import DatabaseError, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from django.http.request import validate_host
from django.utils.module_loading import import_string

from ...checks import check_deployment
from ...conf import settings
from ...declarations.server import Server, servers, sse_address
from ...exceptions import Misdeclared
from ...models import Session, Token
from ...protocol.revisions import REVISIONS
from ...storage import wakeups
from ...storage.databases import is_there
from ...storage.wakeups import ChannelLayerConnection
from ...transports.http.security import allowed_hosts
from ..client_files import own_command
from .findings import (
    DISCOVER,
    INITIALIZE,
    Finding,
    Findings,
    count_tools,
    findings_from_checks,
    is_response,
    message,
    note,
    ok,
    problem,
    request,
    stateless_headers,
    warning,
)

WAKEUP_TIMEOUT_SECONDS, POLL_INTERVAL_SECONDS = 5.0, 0.02
WITHOUT_WAKEUPS = "Each worker polls the database five times a second instead. Nothing is lost."


def workers() -> Findings:
    """Check that wake-ups between workers arrive, and detect a pooler before PostgreSQL."""
    if wakeups.is_configured() or wakeups.is_postgres():
        yield asyncio.run(_test_wakeups())
    else:
        yield note("Workers do not notify each other.", WITHOUT_WAKEUPS)
    if settings.DATABASE in connections:
        yield from _pool(connections[settings.DATABASE])


async def _test_wakeups() -> Finding:
    layer = ChannelLayerConnection()
    layer.open(_ignore_wakeup)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(WAKEUP_TIMEOUT_SECONDS):
                while layer.is_open and not (layer.is_working or layer.last_error):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_INTERVAL_SECONDS)
        return _wakeup_finding(layer)
    finally:
        await layer.close()


def _ignore_wakeup(streams: Collection[int]) -> None: ...


def _wakeup_finding(layer: ChannelLayerConnection) -> Finding:
    if layer.is_working:
        return ok(
            f"Workers notify each other through the {layer.description}: a test message came back."
        )
    if layer.last_error or layer.is_open:
        words = layer.last_error or f"nothing came back in {WAKEUP_TIMEOUT_SECONDS:g} seconds"
        return warning(
            f"The {layer.description} between workers does not work: {words}.", WITHOUT_WAKEUPS
        )
    return note(f"The {layer.description} reaches no other worker.", WITHOUT_WAKEUPS)


def _pool(connection: BaseDatabaseWrapper) -> Findings:
    """Warn if a pooler, such as PgBouncer, is in front of PostgreSQL.

    In transaction mode it breaks server-side cursors, which Django needs a setting for. A pooler is
    detected because the backend process differs from that of the connection.
    """
    options = connection.settings_dict
    if connection.vendor != "postgresql" or options.get("DISABLE_SERVER_SIDE_CURSORS"):
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            (number,) = cursor.fetchone()
    except DatabaseError:
        return  # ``databases`` reports that
    raw = getattr(connection.connection, "pgconn", None)
    if raw is not None and raw.backend_pid != number:
        yield warning(
            "A pooler, such as PgBouncer, is in front of PostgreSQL.",
            "If it is in transaction mode, set DISABLE_SERVER_SIDE_CURSORS = True in DATABASES.",
        )


APP = "django_mcp"


def databases() -> Findings:
    for alias, what in uses().items():
        if alias in connections:  # a missing alias is reported by the system checks
            yield from _database(alias, " and ".join(what))


def uses() -> dict[str, list[str]]:
    """Return the aliases of the databases in use, and what each holds."""
    found: dict[str, list[str]] = {}
    found.setdefault(router.db_for_write(Token), []).append("access tokens")
    found.setdefault(router.db_for_write(Session), []).append("sessions")
    found.setdefault(settings.DATABASE, found.get(settings.DATABASE, ["sessions"]))
    return found


def _database(alias: str, what: str) -> Findings:
    connection = connections[alias]
    named = f"The database {alias!r} ({connection.display_name}, {what})"
    if not is_there(alias):
        yield problem(f"{named} does not exist yet.", migrate(alias))
        return
    try:
        connection.ensure_connection()
        yield from _migrations(connection, alias, named)
    except DatabaseError as error:
        yield problem(f"{named} does not answer: {error}", "Look at DATABASES, and at its server.")
        return
    if connection.vendor == "sqlite":
        yield from _sqlite(connection, named)


def _migrations(connection: Any, alias: str, named: str) -> Findings:
    """Report missing migrations of this app, and those that only a newer version has."""
    executor = MigrationExecutor(connection)
    targets = [key for key in executor.loader.graph.leaf_nodes() if key[0] == APP]
    missing = [step.name for step, _ in executor.migration_plan(targets) if step.app_label == APP]
    applied = MigrationRecorder(connection).applied_migrations()
    unknown = sorted(
        name
        for app, name in applied
        if app == APP and (app, name) not in executor.loader.graph.nodes
    )
    if missing:
        yield problem(f"{named} lacks the migrations {', '.join(missing)}.", migrate(alias))
    elif unknown:
        yield warning(
            f"{named} has the migrations of a newer version: {', '.join(unknown)}.",
            "Install the version that it was migrated for.",
        )
    else:
        yield ok(f"{named} is migrated.")


def migrate(alias: str) -> str:
    return "manage.py migrate" + ("" if alias == "default" else f" --database {alias}")


def _sqlite(connection: Any, named: str) -> Findings:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA journal_mode")
        (mode,) = cursor.fetchone()
    if mode == "wal":
        yield ok(f"{named}: readers do not wait for its writer (WAL).")
    elif mode == "memory":
        yield note(f"{named} is in memory, so its data is lost when the process ends.")
    else:
        yield warning(
            f"{named}: readers wait for its writer (journal_mode is {mode}).",
            "django_mcp.storage.sqlite(path) makes an entry of DATABASES with WAL.",
        )


STDIO_TIMEOUT_SECONDS = 60


def list_tools(server: Server, user: Any) -> Findings:
    """List the tools as ``user`` in every revision."""
    from ...testing import Client

    try:
        server.ready()
    except Misdeclared as error:
        words = f"The server {server.public_name!r} cannot be served: {error}"
        yield problem(words, "manage.py check")
        return
    if server._is_empty:
        yield note(
            f"The server {server.public_name!r} has no declarations.", "manage.py startmcp APP"
        )
        return
    counts = {}
    for revision in REVISIONS:
        with Client(user, server=server, revision=revision) as client:
            counts[revision] = len(client.tools())
    caller = user.get_username() if user is not None else "a client without a token"
    number = max(counts.values())
    yield ok(f"Revisions {', '.join(counts)} work; {caller} gets {count_tools(number)}.")
    if old := sse_address(server):
        yield note(f"HTTP+SSE is on: clients that support nothing newer use {old}.")


def stdio(server: Server, user: str | None) -> Findings:
    """Run a handshake with ``mcp_stdio`` and check that stdout has nothing but the responses."""
    asked = [INITIALIZE, request("notifications/initialized", id=None), request("ping", id=2)]
    command = own_command(user, server)
    try:
        done = subprocess.run(
            command,
            input=b"\n".join([*asked, b""]),
            capture_output=True,
            timeout=STDIO_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield problem(f"mcp_stdio does not end: {type(error).__name__}", " ".join(command))
        return
    answers = [message(line) for line in done.stdout.splitlines()]
    if [answer.get("id") for answer in answers] == [1, 2] and not done.returncode:
        yield ok("mcp_stdio starts, answers and stops.")
        return
    last_line = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
    strange = [line for line in done.stdout.splitlines() if not message(line)][:1]
    output = strange[0].decode(errors="replace") if strange else (last_line or ["nothing"])[0]
    yield problem(
        f"mcp_stdio does not answer as it should (exit code {done.returncode}): {output[:200]}",
        "Nothing but MCP messages may be printed to stdout when the project starts. Try: "
        + json.dumps(command),
    )


PACKAGE = "django_mcp"
SERVERS = ("daphne", "uvicorn", "granian", "hypercorn")
CHECK_TIMEOUT_SECONDS = 10
MOUNT = "In asgi.py: application = mount(get_asgi_application()), from django_mcp.routing."


def system_checks() -> Findings:
    """Run the system checks, with those for deployment unless ``DEBUG`` is on."""
    found = list(run_checks(include_deployment_checks=not django_settings.DEBUG))
    if django_settings.DEBUG:
        found += check_deployment()  # this package's own deployment checks
    findings = list(findings_from_checks(found))
    yield from findings or [ok("The system checks found no problems.")]


def versions() -> Findings:
    yield note(f"Python {platform.python_version()}, Django {django.get_version()}")
    owners = sorted(set(metadata.packages_distributions().get(PACKAGE, [])))
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in owners)
    if len(owners) > 1:
        yield problem(
            f"Several distributions own the package {PACKAGE}, and the last one wins: {versions}.",
            "Uninstall all of them, then install the one that you want.",
        )
    else:
        yield note(f"{versions or PACKAGE}, channels {metadata.version('channels')}")


def asgi_servers() -> Findings:
    found = [f"{name} {version}" for name in SERVERS if (version := _version(name))]
    if found:
        yield ok(f"ASGI servers: {', '.join(found)}")
    else:
        yield problem(
            "No ASGI server is installed, so nothing can be served over HTTP.",
            f"Install one of {', '.join(SERVERS)}.",
        )
    if django_settings.DEBUG and not apps.is_installed("daphne"):
        yield warning(
            "manage.py runserver uses WSGI, over which MCP cannot be served.",
            'Put "daphne" into INSTALLED_APPS, above "django.contrib.staticfiles".',
        )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# The application.


def application() -> Findings:
    """Check that ``ASGI_APPLICATION`` can be imported and serves every server."""
    path = getattr(django_settings, "ASGI_APPLICATION", None)
    if not path:
        yield warning(
            "ASGI_APPLICATION is not set, so the application cannot be checked.",
            "Set it to the path of the application in asgi.py. The runserver of daphne needs it.",
        )
        return
    try:
        found = import_string(path)
    except Exception as error:  # importing runs the project's code, which may raise anything
        yield problem(
            f"ASGI_APPLICATION, {path}, cannot be imported: {type(error).__name__}: {error}",
            "Fix this error first. Until then no ASGI server can start.",
        )
        return
    for server in servers():
        if server is servers()[0] or not server._is_empty:
            yield asyncio.run(_check_mount(found, server, path))


async def _check_mount(application: Any, server: Server, path: str) -> Finding:
    """Check that a request to the server's path reaches the server."""
    where = f"The server {server.public_name!r}, /{server.path},"
    try:
        status, body = await _request(application, _scope(server))
    except Exception as error:  # the application may raise anything
        return problem(f"{where} fails in {path}: {type(error).__name__}: {error}", MOUNT)
    if status in (200, 401) and is_response(body):
        return ok(f"{where} is in {path}.")
    return problem(f"{where} is not in {path}: another view answers there.", MOUNT)


async def _request(application: Any, scope: dict[str, Any]) -> tuple[int, bytes]:
    """Return the status and the body of the application's response."""
    coming: list[dict[str, Any]] = [{"type": "http.request", "body": DISCOVER}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not coming:
            await asyncio.Event().wait()  # the client does not disconnect
        return coming.pop()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
        await application(scope, receive, send)
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent)


def _scope(server: Server) -> dict[str, Any]:
    origin = urlsplit(settings.URL)
    host = next((name for name in allowed_hosts() if "*" not in name), "localhost")
    headers = stateless_headers() | {"Host": host.removeprefix(".")}
    path = f"{(django_settings.FORCE_SCRIPT_NAME or '').rstrip('/')}/{server.path}"
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "scheme": origin.scheme or "http", "path": path, "raw_path": path.encode(),
        "root_path": "", "query_string": b"", "client": ["127.0.0.1", 0],
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip


# The address.


def address() -> Findings:
    """Check that ``DJANGO_MCP["URL"]`` is set, allowed by ALLOWED_HOSTS, and https."""
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
            "every request to it gets status 400.",
            f"Add {host!r} to ALLOWED_HOSTS.",
        )
    elif origin.scheme == "http" and not is_local(host):
        yield warning(
            f"{settings.URL} is not https: access tokens are sent unencrypted.",
            "Serve it over https.",
        )
    else:
        yield ok(f"The public origin is {settings.URL}.")


def is_local(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost") or host in ("127.0.0.1", "::1")
