"""
System checks for the setting ``DJANGO_MCP``, the databases, the deployment and all declarations.

Every message has an id and a hint. ``check_deployment`` runs with ``check --deploy``, and
``check_changes`` and ``check_full_text`` with ``check --database``. A project that declares nothing
imports neither pydantic nor a transport for these checks.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Info, Warning
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, router
from django.urls import Resolver404, resolve
from django.utils.module_loading import import_string

from .auth import scopes
from .conf import DEFAULTS, is_function_path, settings

if TYPE_CHECKING:
    from .declarations.server import Server

# How messages name the types of settings.
TYPE_NAMES: dict[type, str] = {
    str: "a string", int: "a number above 0", list: "a list", dict: "a dict",
}  # fmt: skip
IN_MEMORY = "channels.layers.InMemoryChannelLayer"
DEFAULT_POOL_SIZE = 4  # default size of psycopg's pool
# This package's own database threads in a worker, beside the ``THREADS`` of tools. They poll, log,
# authenticate, send heartbeats and follow changes.
OWN_CONNECTIONS = 11
PROXY_IDLE_SECONDS = 60  # seconds after which proxies close an idle connection by default


def check_settings(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check ``DJANGO_MCP``: known keys, types of values, a valid origin, importable paths."""
    given = getattr(django_settings, "DJANGO_MCP", None) or {}
    if not isinstance(given, dict):
        message = f"DJANGO_MCP is of type {type(given).__name__}."
        return [Error(message, hint="It must be a dict.", id="django_mcp.E093")]
    wrong = [*_unknown_keys(), *_bad_values(given)]
    return wrong or [
        *_bad_url(),
        *_bad_around(),
        *_bad_verifiers(),
        *_bad_throttles(),
        *_bad_scopes(),
        *_bad_approvals(),
    ]


def _unknown_keys() -> Iterator[CheckMessage]:
    for key in settings.unknown():
        near = difflib.get_close_matches(str(key), DEFAULTS, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(DEFAULTS)}."
        yield Error(f"DJANGO_MCP has no key {key!r}.", hint=hint, id="django_mcp.E090")


def _bad_values(given: dict[str, Any]) -> Iterator[CheckMessage]:
    for key, value in given.items():
        kind = type(DEFAULTS.get(key, value))
        if kind in TYPE_NAMES and not _is_of(kind, value):
            message = f"DJANGO_MCP[{key!r}] is {value!r}: it must be {TYPE_NAMES[kind]}."
            yield Error(message, hint="See the reference of settings.", id="django_mcp.E094")


def _is_of(kind: type, value: Any) -> bool:
    if kind is int:
        return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return isinstance(value, (list, tuple) if kind is list else kind)


def _bad_url() -> Iterator[CheckMessage]:
    try:
        origin = urlsplit(settings.URL)
        usable = origin.scheme in ("http", "https") and origin.hostname and origin.port != 0
    except ValueError:
        usable = False
    if not usable or f"{origin.scheme}://{origin.netloc}" != settings.URL.rstrip("/"):
        message = f"DJANGO_MCP['URL'] is {settings.URL!r}, which is not an origin."
        yield Error(
            message,
            hint='Write scheme and host only, such as "https://shop.example".',
            id="django_mcp.E091",
        )


def _bad_around() -> Iterator[CheckMessage]:
    for path in settings.AROUND:
        try:
            wrong = None if callable(import_string(path)) else f"{path} cannot be called."
        except (ImportError, AttributeError) as error:
            wrong = str(error)
        if wrong:
            hint = "Name a context manager that takes the request."
            yield Error(f"AROUND: {wrong}", hint=hint, id="django_mcp.E092")


def _bad_verifiers() -> Iterator[CheckMessage]:
    for path in settings.VERIFIERS:
        if path not in DEFAULTS["VERIFIERS"] and (wrong := _wrong_with_verifier(path)):
            hint = "Name a class without arguments, or an object, that is an mcp.TokenVerifier."
            yield Error(f"VERIFIERS: {wrong}", hint=hint, id="django_mcp.E096")


def _wrong_with_verifier(path: str) -> str | None:
    from .declarations.attribute_checks import misnamed_in_verifier

    try:
        found: Any = import_string(path)
        made: Any = found() if inspect.isclass(found) else found
        if wrong := misnamed_in_verifier(type(made)):
            return f"{path}: {wrong}"
        verify = made.verify
    except Exception as error:  # a verifier may raise anything
        return f"{path}: {error or type(error).__name__}"
    if not inspect.iscoroutinefunction(verify):
        return f"{path}: verify is not an async function."
    return None


def _bad_throttles() -> Iterator[CheckMessage]:
    if not settings.THROTTLES:
        return
    from .calls.throttling import DEFAULTS as KNOWN
    from .declarations.throttles import parse_rate

    for kind, rate in settings.THROTTLES.items():
        try:
            is_valid = kind in KNOWN and (rate is None or bool(parse_rate(rate)))
        except ValueError:
            is_valid = False
        if not is_valid:
            known = ", ".join(KNOWN)
            hint = f'Map each of {known} to a rate such as "600/min", or to None for no limit.'
            yield Error(f"THROTTLES: {kind!r} is {rate!r}.", hint=hint, id="django_mcp.E095")


def _bad_scopes() -> Iterator[CheckMessage]:
    if wrong := scopes.problem(settings.SCOPES):
        hint = 'Write {"mcp": mcp.Scope("Use it with your permissions", covers=["*"])}.'
        yield Error(f"SCOPES: {wrong}", hint=hint, id="django_mcp.E089")


def _bad_approvals() -> Iterator[CheckMessage]:
    if not settings.APPROVALS:
        return
    from .calls.approvals import DEFAULTS as KNOWN

    for key, value in settings.APPROVALS.items():
        if key == "MAIL":
            is_valid = isinstance(value, bool)
        elif key == "QUERYSET":
            is_valid = is_function_path(value)
        else:
            is_valid = _is_of(int, value) or (key == "WAIT" and value == 0)
        if key not in KNOWN or not is_valid:
            hint = (
                'Write {"LIFETIME": 86400, "WAIT": 45, "MAIL": True, "QUERYSET": "shop.mcp.name"}: '
                "times in seconds, and the dotted path of a function."
            )
            message = f"APPROVALS: {key!r} is {value!r}, which is not valid."
            yield Error(message, hint=hint, id="django_mcp.E088")


def check_issuers(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check the configured external token issuers."""
    given = getattr(django_settings, "DJANGO_MCP", None) or {}
    if not isinstance(given, dict) or not given.get("VERIFIERS"):
        return []
    from .verifiers.checks import messages

    return messages()


def check_session_database(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check the database of sessions: that it exists, is routed to, and isolates as required.

    A transaction that waited for a lock must see what the lock's holder committed, so the isolation
    level has to be READ COMMITTED.
    """
    alias = _session_database()
    if alias is None:
        return []
    if alias not in connections:
        hint = f"There are: {', '.join(connections)}."
        message = f"DJANGO_MCP['DATABASE'] is {alias!r}, which DATABASES does not have."
        return [Error(message, hint=hint, id="django_mcp.E097")]
    return [*_bad_router(alias), *_bad_isolation(alias)]


def _session_database() -> str | None:
    """Return the alias of the database for sessions. None if the setting is invalid."""
    given = getattr(django_settings, "DJANGO_MCP", None) or {}
    usable = isinstance(given, dict) and isinstance(settings.DATABASE, str)
    return settings.DATABASE if usable else None


def _bad_router(alias: str) -> Iterator[CheckMessage]:
    from .models import Session

    if router.db_for_write(Session) != alias or not router.allow_migrate_model(alias, Session):
        message = f"DJANGO_MCP['DATABASE'] is {alias!r}, but no router sends sessions there."
        hint = 'Add "django_mcp.storage.router.StorageRouter" to DATABASE_ROUTERS, at the front.'
        yield Error(message, hint=hint, id="django_mcp.E098")


def _bad_isolation(alias: str) -> Iterator[CheckMessage]:
    if not _is_read_committed(connections[alias]):
        message = f"The database {alias!r} does not use the isolation level READ COMMITTED."
        hint = 'Set "isolation_level" to read committed, or name another in DJANGO_MCP["DATABASE"].'
        yield Error(message, hint=hint, id="django_mcp.E099")


def _is_read_committed(connection: Any) -> bool:
    """Whether the isolation level is READ COMMITTED, which Django sets unless told otherwise."""
    options = connection.settings_dict["OPTIONS"]
    if connection.vendor == "sqlite" or "isolation_level" not in options:
        return True
    level = options["isolation_level"]
    if connection.vendor == "postgresql":
        from django.db.backends.postgresql.psycopg_any import IsolationLevel

        return level is None or level == IsolationLevel.READ_COMMITTED
    # For MariaDB, None is the default of the server, which is REPEATABLE READ.
    return isinstance(level, str) and level.lower() == "read committed"


def check_deployment(**kwargs: Any) -> Sequence[CheckMessage]:
    """Return warnings about a setup that works, but not well. Runs with ``check --deploy``."""
    alias = _session_database()
    if alias is None or alias not in connections:
        return []
    found = (
        _shared_file, _single_machine, _no_wakeups, _kept_connections, _session_connections,
        _small_pool, _small_packets,
    )  # fmt: skip
    messages = [message for check in found for message in check(alias)]
    return [*messages, *_any_host(), *_long_silence(), *_no_public_url()]


def _shared_file(alias: str) -> Iterator[CheckMessage]:
    if not _shares_its_file(alias):
        return
    message = "Sessions share a SQLite file with the project. SQLite allows one writer at a time."
    hint = 'Use a separate file: DATABASES["mcp"] = django_mcp.storage.sqlite("mcp.sqlite3").'
    yield Warning(message, hint=hint, id="django_mcp.W100")


def _shares_its_file(alias: str) -> bool:
    others = (connections[other].settings_dict["NAME"] for other in connections if other != alias)
    name = str(connections[alias].settings_dict["NAME"])
    shared = alias == DEFAULT_DB_ALIAS or name in map(str, others)
    return shared and connections[alias].vendor == "sqlite"


def _single_machine(alias: str) -> Iterator[CheckMessage]:
    if connections[alias].vendor == "sqlite":
        message = "Sessions are stored in a SQLite file, so all workers must run on one machine."
        hint = "Use PostgreSQL or MariaDB for several machines."
        yield Info(message, hint=hint, id="django_mcp.I161")


def _no_wakeups(alias: str) -> Iterator[CheckMessage]:
    """Warn if no channel layer or LISTEN/NOTIFY sends wake-ups between workers."""
    named = (getattr(django_settings, "CHANNEL_LAYERS", None) or {}).get("default") or {}
    if named.get("BACKEND") == IN_MEMORY:
        message = "The channel layer is in memory, so it reaches no other worker."
        hint = "Use channels_redis; on PostgreSQL, configure no layer: LISTEN and NOTIFY are used."
        yield Warning(message, hint=hint, id="django_mcp.W160")
    elif not named and connections[alias].vendor != "postgresql":
        message = "Workers do not notify each other: each polls the database five times a second."
        hint = "Use channels_redis with several workers: events arrive sooner, with fewer queries."
        yield Info(message, hint=hint, id="django_mcp.I162")


def _kept_connections(alias: str) -> Iterator[CheckMessage]:
    """Warn if Django's views would leave database connections open under ASGI.

    The database of sessions is exempt unless it is the default: only this package's threads use it.
    """
    for each in connections:
        of_views = each == DEFAULT_DB_ALIAS or each != alias
        kept = connections[each].settings_dict["CONN_MAX_AGE"] != 0
        if of_views and kept and connections[each].vendor != "sqlite":
            message = (
                f"CONN_MAX_AGE leaves connections to the database {each!r} open that no later "
                "request can use."
            )
            hint = (
                "Under ASGI each request of Django's views has a thread of its own, which leaves "
                f"its connection open. Set CONN_MAX_AGE = 0{_with_pool(each)}."
            )
            yield Warning(message, hint=hint, id="django_mcp.W168")


def _with_pool(alias: str) -> str:
    """Return what replaces persistent connections. Django has a pool only for PostgreSQL."""
    if connections[alias].vendor != "postgresql":
        return ""
    size = _threads_of(alias)
    return (
        f' and OPTIONS["pool"] = {{"max_size": {size}, "reconnect_timeout": 5}}, of psycopg[pool]'
    )


def _session_connections(alias: str) -> Iterator[CheckMessage]:
    """Warn if threads that poll sessions reconnect for each query, or skip health checks."""
    given, vendor = connections[alias].settings_dict, connections[alias].vendor
    if vendor == "sqlite" or given["OPTIONS"].get("pool"):
        return
    # A database that is not the default is used by this package's threads only, all the time. The
    # default is used by the project too, for which Django recommends CONN_MAX_AGE = 0 under ASGI.
    of_its_own = alias != DEFAULT_DB_ALIAS
    named = f"Connections to the database {alias!r}"
    if given["CONN_MAX_AGE"] == 0 and (of_its_own or vendor == "postgresql"):
        kept = "Set CONN_MAX_AGE with CONN_HEALTH_CHECKS"
        hint = kept if of_its_own else f"Keep CONN_MAX_AGE = 0{_with_pool(alias)}"
        message = f"{named} are opened again for each query."
        yield Warning(message, hint=f"{hint}.", id="django_mcp.W163")
    elif of_its_own and given["CONN_MAX_AGE"] != 0 and not given["CONN_HEALTH_CHECKS"]:
        message = f"{named} are reused untested: the first query after a restart fails."
        hint = "Set CONN_HEALTH_CHECKS = True."
        yield Warning(message, hint=hint, id="django_mcp.W164")


def _small_pool(alias: str) -> Iterator[CheckMessage]:
    """Warn if the pool is smaller than the number of threads.

    A worker that waits too long for a connection misses its heartbeat and counts as dead.
    """
    pool = connections[alias].settings_dict["OPTIONS"].get("pool")
    if not pool or connections[alias].vendor != "postgresql":
        return
    given = pool if isinstance(pool, dict) else {}
    size = given.get("max_size") or given.get("min_size", DEFAULT_POOL_SIZE)
    if size < (needed := _threads_of(alias)):
        message = f"The pool of the database {alias!r} has {size} connections for {needed} threads."
        hint = f'OPTIONS["pool"] = {{"min_size": 2, "max_size": {needed}}}, or more.'
        yield Warning(message, hint=hint, id="django_mcp.W165")


def _small_packets(alias: str) -> Iterator[CheckMessage]:
    """Warn if MariaDB's ``max_allowed_packet`` is below the largest result or request.

    Escaping may double each character.
    """
    from .storage.event_log import packet_size

    try:
        most = packet_size()
    except DatabaseError:  # the database cannot be reached from here
        return
    if most is None:
        return
    limits = {
        "RESULT_SIZE": int(settings.RESULT_SIZE),
        # None: without a limit there is no size to which the server could be set.
        "DATA_UPLOAD_MAX_MEMORY_SIZE": django_settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0,
    }
    for name, size in limits.items():
        if most < (needed := 2 * size + 65_536):
            message = (
                f"The database {alias!r} takes {most:,} bytes at once, and a message of {name} "
                f"may need {needed:,}: larger ones end in an error."
            )
            hint = f"Set max_allowed_packet = 64M on the server, or {name} = {most // 2 - 65_536}."
            yield Warning(message, hint=hint, id="django_mcp.W159")


def _threads_of(alias: str) -> int:
    """Return how many threads of a worker may use the database at once."""
    for_sessions_alone = alias == settings.DATABASE and alias != DEFAULT_DB_ALIAS
    return OWN_CONNECTIONS + (0 if for_sessions_alone else int(settings.THREADS))


def _any_host() -> Iterator[CheckMessage]:
    if "*" in django_settings.ALLOWED_HOSTS:
        message = (
            "ALLOWED_HOSTS accepts any host, which permits DNS rebinding: a malicious page can "
            "send requests to a server under a host name that it controls."
        )
        hint = "Name the hosts of the site."
        yield Warning(message, hint=hint, id="django_mcp.W166")


def _long_silence() -> Iterator[CheckMessage]:
    if settings.KEEPALIVE >= PROXY_IDLE_SECONDS:
        message = (
            f"KEEPALIVE is {settings.KEEPALIVE} seconds. Proxies such as nginx close streams that "
            f"send nothing for {PROXY_IDLE_SECONDS} seconds."
        )
        hint = f"Set KEEPALIVE well below {PROXY_IDLE_SECONDS} seconds."
        yield Warning(message, hint=hint, id="django_mcp.W167")


def _no_public_url() -> Iterator[CheckMessage]:
    """Warn if ``URL`` is missing or local.

    Clients receive this address and tokens are issued for it. It is never taken from the Host
    header.
    """
    given = settings.given()
    if "URL" in given and not _is_of_this_machine(given["URL"]):
        return
    message = (
        f"DJANGO_MCP['URL'] is {settings.URL!r}, which clients on other machines cannot reach."
    )
    hint = 'Set the public origin of the site, such as "https://shop.example".'
    yield Warning(message, hint=hint, id="django_mcp.W169")


def _is_of_this_machine(url: Any) -> bool:
    host = urlsplit(url).hostname if isinstance(url, str) and not [*_bad_url()] else None
    return host == "localhost" or (host or "").startswith("127.") or host == "::1"


def check_changes(databases: Sequence[str] | None = None, **kwargs: Any) -> Sequence[CheckMessage]:
    """Warn if a database with users or registered models lacks the table of changes.

    It stores their changes for other workers. Runs with ``check --database``.
    """
    if not databases:  # as in `check` without the option, which need not import the change log
        return []
    from .storage import change_log

    missing = [alias for alias in databases if _lacks_changes(change_log, alias)]
    return [_missing_table_warning(alias) for alias in missing]


def _lacks_changes(changes: Any, alias: str) -> bool:
    """Whether the database was migrated before it needed the table of changes.

    Migration 0002 creates the table only in databases that need it, and is then recorded as applied
    in all of them.
    """
    from django.db.migrations.recorder import MigrationRecorder

    if alias not in changes.aliases() or changes.has_table(alias):
        return False
    applied = MigrationRecorder(connections[alias]).applied_migrations()
    return any(app == "django_mcp" and name.startswith("0002") for app, name in applied)


def _missing_table_warning(alias: str) -> CheckMessage:
    what = "users, or rows of registered models"
    message = f"The database {alias!r} has {what}, and no table of changes."
    migrate = f"manage.py migrate --database {alias} django_mcp"
    hint = f"{migrate} --fake 0001; then {migrate}"
    return Warning(message, hint=hint, id="django_mcp.W145")


def check_full_text(
    databases: Sequence[str] | None = None, **kwargs: Any
) -> Sequence[CheckMessage]:
    """Warn if a full-text search of a model resource lacks its index or table.

    Runs with ``check --database``.
    """
    from .declarations.server import servers

    served = [server for server in servers() if not server._is_empty] if databases else []
    if not served:
        return []
    from .declarations.catalog import full_text_warnings

    return [
        message
        for server in served
        if not any(found.is_serious() for found in server.check())
        for message in full_text_warnings(server._catalog, databases or [])
    ]


def check_declarations(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check everything that ``mcp.py`` modules declare, on every server."""
    from .declarations.server import servers

    if all(server._is_empty for server in servers()):
        return []  # a project without declarations does not import pydantic in every command
    from .declarations.fields.field_types import registration_problems

    found = [message for server in servers() for message in _messages_of(server)]
    # Without valid settings and declarations, throttles cannot be read.
    if not any(message.is_serious() for message in (*check_settings(), *found)):
        found += _cache_warnings()
    return [*found, *registration_problems()]


def _cache_warnings() -> list[CheckMessage]:
    """Return a warning for each cache that counts throttles, but not for all workers."""
    from .calls.throttling import declared_throttles
    from .declarations.server import servers
    from .declarations.throttles import cache_problem

    declared = [
        one for server in servers() if not server._is_empty for one in declared_throttles(server)
    ]
    hint = "Use Redis or Memcached: in CACHES, or in another cache that Throttle.cache names."
    aliases = dict.fromkeys(one.throttle.cache for one in declared)
    return [
        Warning(f"The cache {alias!r} counts throttles. {problem}", hint=hint, id="django_mcp.W157")
        for alias in aliases
        if (problem := cache_problem(alias, is_debug=django_settings.DEBUG))
    ]


def _messages_of(server: Server) -> Iterator[CheckMessage]:
    found = server.check()
    yield from found
    if not server._is_empty and not any(message.is_serious() for message in found):
        from .declarations.catalog import unreachable

        yield from unreachable(server._catalog)


def check_urls(**kwargs: Any) -> Sequence[CheckMessage]:
    """Warn about views of the project at the path of a server: ``mount`` never passes them on."""
    from .declarations.server import servers

    if not getattr(django_settings, "ROOT_URLCONF", None):
        return []
    served = [server for server in servers() if not server._is_empty]
    return [
        message
        for server in served
        for path in server._paths
        if path
        for message in _hidden_view(server, path)
    ]


def _hidden_view(server: Server, server_path: str) -> Iterator[CheckMessage]:
    from .declarations.server import default_server

    for path in (f"/{server_path}", f"/{server_path}/"):
        try:
            found = resolve(path)
        except Resolver404:
            continue
        # A route with parameters serves other paths as well, for which the project may need it.
        if not found.args and not found.kwargs:
            message = (
                f"The server {server.public_name!r} hides the view {found._func_path} at {path}."
            )
            how = f"mcp.Server({server.name!r}, path=...)"
            if server is default_server:
                how = "mcp.server.path = ..."
            hint = f"Move the view, or the server: {how}"
            yield Warning(message, hint=hint, id="django_mcp.W101")
            return
