"""
The app configurations. ``MCPConfig`` imports the ``mcp`` module of every installed app.

It does so as the admin imports every ``admin.py``. ``SimpleMCPConfig`` does not.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.core import checks
from django.db import OperationalError, ProgrammingError, connections
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from .auth.kill_switches import ActiveKillSwitch
    from .declarations.declaration import Declaration
    from .declarations.model_resources import ModelResource

logger = logging.getLogger("django_mcp")
HELP = frozenset(("-h", "--help"))


def operations_of(resource: ModelResource) -> Iterable[Declaration]:
    """Return the tools that write rows of ``resource``.

    The bridge is imported for the first resource with ``operations``, not when Django starts.
    """
    if not resource.operations:
        return ()
    from .bridges.model_operations import operations_of

    return operations_of(resource)


@lru_cache(maxsize=256)  # so that an invalid rate is logged once, not at each query
def valid_rate(rate: str) -> str:
    """Return the rate, or "" if it is invalid: then the kill switch switches off.

    The form of the admin rejects such a rate, but other code can write one.
    """
    from .declarations.throttles import parse_rate

    try:
        parse_rate(rate)
    except ValueError as error:
        logger.error("A kill switch has an invalid limit, so it switches off: %s", error)
        return ""
    return rate


def active_switches() -> frozenset[ActiveKillSwitch]:
    """Return all kill switches, by one query.

    Before the first migration that is nothing, and reading does not create a SQLite file.
    """
    from .auth.kill_switches import ActiveKillSwitch
    from .models import Switch
    from .storage.databases import is_there

    rows = Switch.objects.values_list(*ActiveKillSwitch._fields)
    if not is_there(rows.db):
        return frozenset()
    try:
        found = map(ActiveKillSwitch._make, rows)
        return frozenset(
            one._replace(rate=valid_rate(one.rate)) if one.rate else one for one in found
        )
    except (OperationalError, ProgrammingError):
        if Switch._meta.db_table in connections[rows.db].introspection.table_names():
            raise
        return frozenset()


def describe_calls_to_sentry() -> None:
    """Give Sentry the name, the user and the tool of each call."""
    from .calls.records import wrappers
    from .sentry import describe_to_sentry, remove_variables

    if describe_to_sentry not in wrappers:
        wrappers.append(describe_to_sentry)
        sys.modules["sentry_sdk"].scope.add_global_event_processor(remove_variables)


class SimpleMCPConfig(AppConfig):
    """Configuration without autodiscovery: the project imports its declarations itself."""

    name = "django_mcp"
    label = "django_mcp"
    verbose_name = _("Model Context Protocol")
    default_auto_field = "django.db.models.BigAutoField"

    def __init__(self, app_name: str, app_module: ModuleType | None) -> None:
        super().__init__(app_name, app_module)
        if sys.argv[1:2] == ["mcp_stdio"] and not HELP.intersection(sys.argv):
            # Over stdio, stdout carries JSON-RPC messages only. Whatever the project prints while
            # it loads would break the stream, so it goes to stderr.
            sys.stdout = sys.stderr

    def ready(self) -> None:
        from .auth import kill_switches
        from .changes import receivers
        from .checks import (
            check_changes,
            check_declarations,
            check_deployment,
            check_full_text,
            check_issuers,
            check_session_database,
            check_settings,
            check_urls,
        )
        from .declarations.registry import model_extensions

        checks.register(check_settings, "django_mcp")
        checks.register(check_session_database, "django_mcp")
        checks.register(check_deployment, "django_mcp", deploy=True)
        checks.register(check_issuers, "django_mcp")
        checks.register(check_changes, checks.Tags.database)
        checks.register(check_full_text, checks.Tags.database)
        checks.register(check_declarations, "django_mcp")
        checks.register(check_urls, checks.Tags.urls)
        kill_switches.source[:] = [active_switches]
        # override_settings(INSTALLED_APPS=...) runs ready() again
        if operations_of not in model_extensions:
            model_extensions.append(operations_of)
        receivers.connect_all()
        if "sentry_sdk" in sys.modules:  # the project uses it, and imports it in its settings
            describe_calls_to_sentry()


class MCPConfig(SimpleMCPConfig):
    """Imports the ``mcp`` module of every installed app."""

    default = True

    def ready(self) -> None:
        super().ready()
        autodiscover_modules("mcp")
