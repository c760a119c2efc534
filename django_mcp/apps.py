"""
The app: finds every ``mcp.py``, as the admin finds every ``admin.py``.

``SimpleMCPConfig`` does not look for them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from django.apps import AppConfig, apps
from django.core import checks
from django.db.models import signals
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django.db.models import Model

    from .declare.declarations import Declaration
    from .declare.model_resources import ModelResource

HELP = frozenset(("-h", "--help"))


def operations_of(resource: ModelResource) -> Iterable[Declaration]:
    """The tools that write rows of ``resource``."""
    from .bridges.model_operations import operations_of

    return operations_of(resource)


def registered_models() -> Iterable[type[Model]]:
    from .declare.servers import servers

    return [model for server in servers() for model, _ in server.models]


def saved(**kwargs: Any) -> None:
    """A row was saved or deleted. What hears of it is not imported before."""
    from .dispatch import saves

    saves.saved(**kwargs)


def related(**kwargs: Any) -> None:
    from .dispatch import saves

    saves.related(**kwargs)


def granting_ended(**kwargs: Any) -> None:
    from .dispatch import saves

    saves.granting_ended(**kwargs)


# Whose deletions are heard of. Not all models': rows that somebody hears of are fetched by Django
# and deleted by their keys, where one statement would do for those of nobody.
_heard: WeakSet[type[Any]] = WeakSet()


def hear_of_deletions(model: type[Any]) -> None:
    """Of rows of ``model``, by whichever class: its own, a child's, a proxy's."""
    _heard.add(model)
    signals.post_delete.connect(saved, sender=model, dispatch_uid="django_mcp.deleted")
    for kind in model.__subclasses__():
        hear_of_deletions(kind)


def _registered(model: type[Any]) -> None:
    hear_of_deletions(model._meta.concrete_model or model)


def _prepared(sender: type[Any], **kwargs: Any) -> None:
    """A class that came later, as a proxy in an ``admin.py``."""
    if not _heard.isdisjoint(sender.__mro__):
        hear_of_deletions(sender)


def _hear_of_saves() -> None:
    from .declare.servers import registering
    from .models.changes import sources

    sources[:] = [registered_models]
    signals.post_save.connect(saved, dispatch_uid="django_mcp.saved")
    signals.m2m_changed.connect(related, dispatch_uid="django_mcp.related")
    _hear_of_grants()
    signals.class_prepared.connect(_prepared, dispatch_uid="django_mcp.prepared")
    registering[:] = [_registered]
    for model in registered_models():
        _registered(model)


def _hear_of_grants() -> None:
    for name in ("Group", "Permission") if apps.is_installed("django.contrib.auth") else ():
        signals.post_delete.connect(
            granting_ended, sender=apps.get_model("auth", name), dispatch_uid="django_mcp.granted"
        )


class SimpleMCPConfig(AppConfig):
    """Without autodiscovery: import what declares yourself."""

    name = "django_mcp"
    label = "django_mcp"
    verbose_name = _("Model Context Protocol")
    default_auto_field = "django.db.models.BigAutoField"

    def __init__(self, app_name: str, app_module: ModuleType | None) -> None:
        super().__init__(app_name, app_module)
        if sys.argv[1:2] == ["mcp_stdio"] and not HELP.intersection(sys.argv):
            sys.stdout = sys.stderr  # what the project prints while it loads is no message

    def ready(self) -> None:
        from .checks import (
            check_changes,
            check_declarations,
            check_delivery,
            check_deployment,
            check_settings,
        )
        from .declare.derivations import derivations

        checks.register(check_settings, "django_mcp")
        checks.register(check_delivery, "django_mcp")
        checks.register(check_deployment, "django_mcp", deploy=True)
        checks.register(check_changes, checks.Tags.database)
        checks.register(check_declarations, "django_mcp")
        if operations_of not in derivations:  # settings of a test may load the apps again
            derivations.append(operations_of)
        _hear_of_saves()


class MCPConfig(SimpleMCPConfig):
    """Imports the ``mcp`` module of every installed app."""

    default = True

    def ready(self) -> None:
        super().ready()
        autodiscover_modules("mcp")
