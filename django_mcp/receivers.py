"""
Who hears Django's signals: that a row was saved, related to another, or deleted.

Rule: what is heard of a model is heard of its rows by whichever class they are written: a child's,
a proxy's, one that is made later. What hears of it is not imported before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from django.apps import apps
from django.db.models import signals

if TYPE_CHECKING:
    from django.db.models import Model

# By which signal, and by whom in ``dispatch``.
Signs = Iterable[tuple[str, str]]
OF_ANY: Signs = [
    ("post_save", "saves.saved"),
    ("m2m_changed", "saves.related"),
    ("m2m_changed", "standing.related"),
]
# Deletions are not heard of all models: rows that somebody hears of are fetched by Django and
# deleted by their keys, where one statement would do for those of nobody.
OF_ROWS: Signs = [("post_delete", "saves.saved")]
OF_PARENTS: Signs = [("pre_save", "standing.noting"), ("post_save", "standing.saved")]
OF_USERS: Signs = [*OF_PARENTS, ("post_delete", "standing.deleted")]
OF_GRANTS: Signs = [
    ("post_save", "standing.granted"),
    ("post_delete", "standing.granting_ended"),
]
OF_THROUGHS: Signs = [  # a project's own tables between users and what they are granted
    ("pre_save", "standing.joining"),
    ("post_save", "standing.joined"),
    ("post_delete", "standing.joined"),
]
OF_TOKENS: Signs = [
    ("post_save", "standing.token_saved"),
    ("post_delete", "standing.token_deleted"),
]
OF_SWITCHES: Signs = [
    ("post_save", "standing.switched"),
    ("post_delete", "standing.switched"),
]


def _receiver(name: str) -> Callable[..., None]:
    def heard(**kwargs: Any) -> None:
        module, function = name.split(".")
        getattr(import_module(f"{__package__}.dispatch.{module}"), function)(**kwargs)

    return heard


_RECEIVERS = {
    name: _receiver(name)
    for signs in (OF_ANY, OF_ROWS, OF_USERS, OF_GRANTS, OF_THROUGHS, OF_TOKENS, OF_SWITCHES)
    for _, name in signs
}


# Of which models.


def registered_models() -> Iterable[type[Model]]:
    from .declare.servers import servers

    return [model for server in servers() for model, _ in server.models]


def granting_models() -> Mapping[type[Model], Signs]:
    """Whose rows say who may do what, and what is heard of them."""
    if not apps.is_installed("django.contrib.auth"):
        return {}
    from .dispatch import holders

    grants = (apps.get_model("auth", name) for name in ("Group", "Permission"))
    throughs = [one.through for one in holders.relations()]
    own = [one for one in throughs if not one._meta.auto_created]
    return {
        **dict.fromkeys(holders.parents(), OF_PARENTS),
        holders.users(): OF_USERS,
        **dict.fromkeys(grants, OF_GRANTS),
        **dict.fromkeys(own, OF_THROUGHS),
    }


def our_models() -> Mapping[type[Model], Signs]:
    named = {"Token": OF_TOKENS, "Switch": OF_SWITCHES}
    return {apps.get_model("django_mcp", name): signs for name, signs in named.items()}


def hear_of_all() -> None:
    from .declare.servers import registering
    from .models.changes import sources

    sources[:] = [registered_models, granting_models]
    _connect(OF_ANY, None)
    for model, signs in {**granting_models(), **our_models()}.items():
        hear_of(model, signs)
    signals.class_prepared.connect(_prepared, dispatch_uid="django_mcp.prepared")
    registering[:] = [_registered]
    for model in registered_models():
        _registered(model)


_heard: WeakKeyDictionary[type[Any], set[tuple[str, str]]] = WeakKeyDictionary()


def hear_of(model: type[Any], signs: Signs) -> None:
    """Of rows of ``model``, by whichever class: its own, a child's, a proxy's."""
    _heard.setdefault(model, set()).update(signs)
    _connect(signs, model)
    for kind in model.__subclasses__():
        hear_of(kind, signs)


def _connect(signs: Signs, model: type[Any] | None) -> None:
    for signal, name in signs:
        receiver, id = _RECEIVERS[name], f"django_mcp.{name}"
        getattr(signals, signal).connect(receiver, sender=model, dispatch_uid=id)


def _registered(model: type[Any]) -> None:
    hear_of(model._meta.concrete_model or model, OF_ROWS)


def _prepared(sender: type[Any], **kwargs: Any) -> None:
    """A class that came later, as a proxy in an ``admin.py``."""
    if signs := {sign for kind in sender.__mro__ for sign in _heard.get(kind, ())}:
        hear_of(sender, signs)
