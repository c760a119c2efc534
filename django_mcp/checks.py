"""
What ``manage.py check`` says: every mistake at once, each with an id and a hint.

Rule: a project that declares nothing pays nothing: neither pydantic nor any
transport is imported to find that out.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Info, Warning
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.utils.module_loading import import_string

from . import scopes
from .conf import DEFAULTS, settings

# What a value of each kind of setting is, in words.
KINDS: dict[type, str] = {
    str: "a string", int: "a number above 0", list: "a list", dict: "a dict",
}  # fmt: skip
# As MariaDB's OPTIONS say it, and PostgreSQL's, where it is a number.
READ_COMMITTED = frozenset((None, "read committed", 2))
IN_MEMORY = "channels.layers.InMemoryChannelLayer"
POOL = 4  # connections that psycopg's has, unless it is told otherwise
OWN = 11  # threads that look, log, let in, beat and follow changes; beside those of tools
SILENCE = 60  # seconds after which proxies end a connection, unless they are told otherwise
RATE = re.compile(r"[1-9][0-9]*/[1-9][0-9]*\Z")


def check_settings(**kwargs: Any) -> Sequence[CheckMessage]:
    """The one setting: known keys, values of the right kind, a usable origin, real paths."""
    given = getattr(django_settings, "DJANGO_MCP", None) or {}
    if not isinstance(given, dict):
        message = f"DJANGO_MCP is of type {type(given).__name__}."
        return [Error(message, hint="It is one dict.", id="django_mcp.E093")]
    wrong = [*_unknown_keys(), *_bad_values(given)]
    return wrong or [*_bad_url(), *_bad_around(), *_bad_verifiers(), *_bad_rates(), *_bad_scopes()]


def _unknown_keys() -> Iterator[CheckMessage]:
    for key in settings.unknown():
        near = difflib.get_close_matches(str(key), DEFAULTS, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(DEFAULTS)}."
        yield Error(f"DJANGO_MCP has no key {key!r}.", hint=hint, id="django_mcp.E090")


def _bad_values(given: dict[str, Any]) -> Iterator[CheckMessage]:
    for key, value in given.items():
        kind = type(DEFAULTS.get(key, value))
        if kind in KINDS and not _is_of(kind, value):
            message = f"DJANGO_MCP[{key!r}] is {value!r}."
            yield Error(message, hint=f"It is {KINDS[kind]}.", id="django_mcp.E094")


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
        message = f"DJANGO_MCP['URL'] is {settings.URL!r}, which is no origin."
        yield Error(message, hint='Such as "https://shop.example".', id="django_mcp.E091")


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
    try:
        found: Any = import_string(path)
        made: Any = found() if inspect.isclass(found) else found
        verify = made.verify
    except Exception as error:  # the project's code runs: whatever it raises is what is wrong
        return f"{path}: {error or type(error).__name__}"
    if not inspect.iscoroutinefunction(verify):
        return f"{path}: verify is no async function."
    return None


def _bad_rates() -> Iterator[CheckMessage]:
    if not settings.RATES:
        return
    from .dispatch.limits import DEFAULTS as KNOWN

    for kind, rate in settings.RATES.items():
        if kind not in KNOWN or not (rate is None or (isinstance(rate, str) and RATE.match(rate))):
            known = ", ".join(KNOWN)
            hint = f'"number/seconds", or None for no limit, of each of {known}.'
            yield Error(f"RATES: {kind!r} is {rate!r}.", hint=hint, id="django_mcp.E095")


def _bad_scopes() -> Iterator[CheckMessage]:
    if wrong := scopes.problem(settings.SCOPES):
        hint = 'Such as {"mcp": mcp.Scope("Use it with your permissions", covers=["*"])}.'
        yield Error(f"SCOPES: {wrong}", hint=hint, id="django_mcp.E089")


def check_issuers(**kwargs: Any) -> Sequence[CheckMessage]:
    """Whose tokens are taken that are given out elsewhere."""
    given = getattr(django_settings, "DJANGO_MCP", None) or {}
    if not isinstance(given, dict) or not given.get("VERIFIERS"):
        return []
    from .issuers.checks import messages

    return messages()


def check_delivery(**kwargs: Any) -> Sequence[CheckMessage]:
    """The database of sessions and their log: it is there, is used, and isolates as it must."""
    alias = _log()
    if alias is None:
        return []
    if alias not in connections:
        hint = f"There are: {', '.join(connections)}."
        message = f"DJANGO_MCP['DATABASE'] is {alias!r}, which DATABASES does not have."
        return [Error(message, hint=hint, id="django_mcp.E097")]
    return [*_bad_router(alias), *_bad_isolation(alias)]


def _log() -> str | None:
    """The alias of that database; None where the setting is told wrong already."""
    given = getattr(django_settings, "DJANGO_MCP", None) or {}
    usable = isinstance(given, dict) and isinstance(settings.DATABASE, str)
    return settings.DATABASE if usable else None


def _bad_router(alias: str) -> Iterator[CheckMessage]:
    from .models import Session

    if router.db_for_write(Session) != alias or not router.allow_migrate_model(alias, Session):
        message = f"DJANGO_MCP['DATABASE'] is {alias!r}, but sessions are not kept there."
        hint = 'Add "django_mcp.delivery.router.DeliveryRouter" to DATABASE_ROUTERS, at the front.'
        yield Error(message, hint=hint, id="django_mcp.E098")


def _bad_isolation(alias: str) -> Iterator[CheckMessage]:
    level = connections[alias].settings_dict["OPTIONS"].get("isolation_level")
    if (level.lower() if isinstance(level, str) else level) not in READ_COMMITTED:
        message = f"Transactions of the database {alias!r} do not see what others have committed."
        hint = 'Set "isolation_level" to read committed, or name another in DJANGO_MCP["DATABASE"].'
        yield Error(message, hint=hint, id="django_mcp.E099")


def check_deployment(**kwargs: Any) -> Sequence[CheckMessage]:
    """Of ``check --deploy``: what works, and not well."""
    alias = _log()
    if alias is None or alias not in connections:
        return []
    found = (_shared_file, _one_machine, _no_line, _connections, _small_pool)
    messages = [message for look in found for message in look(alias)]
    return [*messages, *_any_host(), *_long_silence()]


def _shared_file(alias: str) -> Iterator[CheckMessage]:
    if not _shares_its_file(alias):
        return
    message = "Sessions and their log share a SQLite file with the project, and it has one writer."
    hint = 'Give them their own: DATABASES["mcp"] = django_mcp.delivery.sqlite("mcp.sqlite3").'
    yield Warning(message, hint=hint, id="django_mcp.W100")


def _shares_its_file(alias: str) -> bool:
    others = (connections[other].settings_dict["NAME"] for other in connections if other != alias)
    name = str(connections[alias].settings_dict["NAME"])
    shared = alias == DEFAULT_DB_ALIAS or name in map(str, others)
    return shared and connections[alias].vendor == "sqlite"


def _one_machine(alias: str) -> Iterator[CheckMessage]:
    if connections[alias].vendor == "sqlite":
        message = "Sessions are kept in a SQLite file: all workers are on the machine that has it."
        hint = "For several machines use PostgreSQL or MariaDB."
        yield Info(message, hint=hint, id="django_mcp.I161")


def _no_line(alias: str) -> Iterator[CheckMessage]:
    """What rings at other workers, if anything does."""
    named = (getattr(django_settings, "CHANNEL_LAYERS", None) or {}).get("default") or {}
    if named.get("BACKEND") == IN_MEMORY:
        message = "The channel layer is in memory, and reaches no other worker."
        hint = "Use channels_redis; on PostgreSQL name none, and the database rings."
        yield Warning(message, hint=hint, id="django_mcp.W160")
    elif not named and connections[alias].vendor != "postgresql":
        message = "Nothing rings between workers: each looks six times a second."
        hint = "For several workers a channel layer is quicker, and costs less: channels_redis."
        yield Info(message, hint=hint, id="django_mcp.I162")


def _connections(alias: str) -> Iterator[CheckMessage]:
    """Of a server: kept, and looked at before they are used again."""
    given = connections[alias].settings_dict
    if connections[alias].vendor == "sqlite" or given["OPTIONS"].get("pool"):
        return
    named = f"Connections to the database {alias!r}"
    if given["CONN_MAX_AGE"] == 0:
        hint = 'Set CONN_MAX_AGE with CONN_HEALTH_CHECKS, or OPTIONS["pool"] on PostgreSQL.'
        message = f"{named} are made anew for each look at a session."
        yield Warning(message, hint=hint, id="django_mcp.W163")
    elif not given["CONN_HEALTH_CHECKS"]:
        message = f"{named} are used again unseen: after its restart, work fails first."
        hint = "Set CONN_HEALTH_CHECKS = True."
        yield Warning(message, hint=hint, id="django_mcp.W164")


def _small_pool(alias: str) -> Iterator[CheckMessage]:
    """Who waits for a connection too long is taken for dead."""
    pool = connections[alias].settings_dict["OPTIONS"].get("pool")
    if not pool or connections[alias].vendor != "postgresql":
        return
    given = pool if isinstance(pool, dict) else {}
    size = given.get("max_size") or given.get("min_size", POOL)
    needed = OWN + (settings.THREADS if alias == DEFAULT_DB_ALIAS else 0)
    if size < needed:
        message = f"The pool of the database {alias!r} has {size} connections for {needed} threads."
        hint = f'OPTIONS["pool"] = {{"min_size": 2, "max_size": {needed}}}, or more.'
        yield Warning(message, hint=hint, id="django_mcp.W165")


def _any_host() -> Iterator[CheckMessage]:
    if "*" in django_settings.ALLOWED_HOSTS:
        message = "ALLOWED_HOSTS takes any host: a page may reach a server under a name of its own."
        hint = "Name the hosts of the site."
        yield Warning(message, hint=hint, id="django_mcp.W166")


def _long_silence() -> Iterator[CheckMessage]:
    if settings.KEEPALIVE >= SILENCE:
        message = f"Streams are silent for {settings.KEEPALIVE} seconds, and proxies end them."
        hint = f"Let KEEPALIVE be well below {SILENCE} seconds, after which nginx does."
        yield Warning(message, hint=hint, id="django_mcp.W167")


def check_changes(databases: Sequence[str] | None = None, **kwargs: Any) -> Sequence[CheckMessage]:
    """Of ``check --database``: what is saved there can be told of."""
    from .delivery import changes

    return [_no_changes(alias) for alias in databases or () if _lacks_changes(changes, alias)]


def _lacks_changes(changes: Any, alias: str) -> bool:
    """Migrated, before what is told of had its rows there."""
    from django.db.migrations.recorder import MigrationRecorder

    if alias not in changes.aliases() or changes.has_table(alias):
        return False
    applied = MigrationRecorder(connections[alias]).applied_migrations()
    return any(app == "django_mcp" and name.startswith("0004") for app, name in applied)


def _no_changes(alias: str) -> CheckMessage:
    what = "users, or rows of registered models"
    message = f"The database {alias!r} has {what}, and no table of changes."
    migrate = f"manage.py migrate --database {alias} django_mcp"
    hint = f"{migrate} --fake 0003; then {migrate}"
    return Warning(message, hint=hint, id="django_mcp.W145")


def check_declarations(**kwargs: Any) -> Sequence[CheckMessage]:
    """Everything that ``mcp.py`` modules declare, on every server."""
    from .declare.servers import servers

    return [message for server in servers() for message in server.check()]
