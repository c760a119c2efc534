"""
The app: finds every ``mcp.py``, as the admin finds every ``admin.py``.

``SimpleMCPConfig`` does not look for them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
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


def switched_off() -> frozenset[tuple[str, str]]:
    """What administrators have switched off."""
    from .delivery.switches import switched_off

    return switched_off()


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
    _RECEIVERS["related"](**kwargs)


def _of_standing(name: str) -> Callable[..., None]:
    """A receiver of ``dispatch.standing``."""

    def heard(**kwargs: Any) -> None:
        from .dispatch import standing

        getattr(standing, name)(**kwargs)

    return heard


# What is heard of users, of what they are granted, and of tokens: by which signal, and by whom.
OF_USERS = {"pre_save": "noting", "post_save": "saved", "post_delete": "deleted"}
OF_GRANTS = {"post_save": "granted", "post_delete": "granting_ended"}
OF_TOKENS = {"post_save": "token_saved", "post_delete": "token_deleted"}
OF_SWITCHES = {"post_save": "switched", "post_delete": "switched"}
_RECEIVERS = {
    name: _of_standing(name)
    for name in (
        *OF_USERS.values(),
        *OF_GRANTS.values(),
        *OF_TOKENS.values(),
        *OF_SWITCHES.values(),
        "related",
    )
}


def granting_models() -> Mapping[type[Model], Mapping[str, str]]:
    """Whose rows say who may do what, and what is heard of them."""
    from django.conf import settings

    if not apps.is_installed("django.contrib.auth"):
        return {}
    grants = (apps.get_model("auth", name) for name in ("Group", "Permission"))
    return {apps.get_model(settings.AUTH_USER_MODEL): OF_USERS} | dict.fromkeys(grants, OF_GRANTS)


# Whose deletions are heard of. Not all models': rows that somebody hears of are fetched by Django
# and deleted by their keys, where one statement would do for those of nobody.
_heard: WeakSet[type[Any]] = WeakSet()
_users: WeakSet[type[Any]] = WeakSet()  # the user model, and what is made of it


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
    if not _users.isdisjoint(sender.__mro__):
        _hear_of_users(sender)


def _hear_of_saves() -> None:
    from .declare.servers import registering
    from .models.changes import sources

    sources[:] = [registered_models, granting_models]
    signals.post_save.connect(saved, dispatch_uid="django_mcp.saved")
    signals.m2m_changed.connect(related, dispatch_uid="django_mcp.related")
    _hear_of_grants()
    signals.class_prepared.connect(_prepared, dispatch_uid="django_mcp.prepared")
    registering[:] = [_registered]
    for model in registered_models():
        _registered(model)


def _hear_of_grants() -> None:
    from .models import Token

    _connect(OF_TOKENS, Token)
    for model, signs in granting_models().items():
        if signs is OF_USERS:
            _hear_of_users(model)
        else:
            _connect(signs, model)


def _hear_of_users(model: type[Any]) -> None:
    """Saved as whichever class: a child's, a proxy's."""
    _users.add(model)
    _connect(OF_USERS, model)
    for kind in model.__subclasses__():
        _hear_of_users(kind)


def _connect(signs: Mapping[str, str], model: type[Any]) -> None:
    for signal, name in signs.items():
        receiver, id = _RECEIVERS[name], f"django_mcp.standing.{name}"
        getattr(signals, signal).connect(receiver, sender=model, dispatch_uid=id)


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
        from . import switches
        from .checks import (
            check_changes,
            check_declarations,
            check_delivery,
            check_deployment,
            check_issuers,
            check_settings,
        )
        from .declare.derivations import derivations

        checks.register(check_settings, "django_mcp")
        checks.register(check_delivery, "django_mcp")
        checks.register(check_deployment, "django_mcp", deploy=True)
        checks.register(check_issuers, "django_mcp")
        checks.register(check_changes, checks.Tags.database)
        checks.register(check_declarations, "django_mcp")
        switches.source[:] = [switched_off]
        _connect(OF_SWITCHES, self.get_model("Switch"))
        if operations_of not in derivations:  # settings of a test may load the apps again
            derivations.append(operations_of)
        _hear_of_saves()


class MCPConfig(SimpleMCPConfig):
    """Imports the ``mcp`` module of every installed app."""

    default = True

    def ready(self) -> None:
        super().ready()
        autodiscover_modules("mcp")
