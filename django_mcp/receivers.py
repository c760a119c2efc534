"""
Connect signal receivers to the models whose changes matter to MCP clients.

Receivers are connected to registered models, to models that grant permissions (users, groups,
permissions, tokens and kill switches), and to no others, so that saves of other models cost
nothing. A receiver also runs for rows that are written through a subclass or proxy of a model, even
one that is defined later (``class_prepared``). The modules that handle a signal are imported when
it is first received.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db.models import signals

if TYPE_CHECKING:
    from django.db.models import Model

# The signal, and the function that receives it, as "module.function" of this package.
Signs = Iterable[tuple[str, str]]
# No receiver is connected without a sender: with one Django fetches rows before it deletes them,
# and selects the existing rows before it adds a many-to-many relation.
OF_ROWS: Signs = [("post_delete", "changes.capture.saved")]
# A row of a parent is a part of the registered model's row. When Django deletes it, the registered
# model's row sends a signal of its own.
OF_ROWS_AND_PARENTS: Signs = [
    ("post_save", "changes.capture.saved"),
    ("m2m_changed", "changes.capture.related"),
]
OF_PARENTS: Signs = [
    ("pre_save", "changes.permission_changes.noting"),
    ("post_save", "changes.permission_changes.saved"),
]
OF_USERS: Signs = [*OF_PARENTS, ("post_delete", "changes.permission_changes.deleted")]
OF_SIGN_INS: Signs = [
    ("pre_save", "oauth.revocation.note_password"),
    ("post_save", "oauth.revocation.revoke"),
]
OF_GRANTS: Signs = [
    ("post_save", "changes.permission_changes.granted"),
    ("post_delete", "changes.permission_changes.granting_ended"),
]
OF_THROUGHS: Signs = [  # the project's own through models of users, groups and permissions
    ("pre_save", "changes.permission_changes.joining"),
    ("post_save", "changes.permission_changes.joined"),
    ("post_delete", "changes.permission_changes.joined"),
]
OF_RELATIONS: Signs = [
    ("m2m_changed", "changes.permission_changes.related")
]  # changes of the same relations by ``.add()`` and the like
OF_TOKENS: Signs = [
    ("post_save", "changes.permission_changes.token_saved"),
    ("post_delete", "changes.permission_changes.token_deleted"),
]
OF_SWITCHES: Signs = [
    ("post_save", "changes.permission_changes.switched"),
    ("post_delete", "changes.permission_changes.switched"),
]


_senders: defaultdict[str, WeakSet[type[Any]]] = defaultdict(WeakSet)  # of each receiver, by name


@cache
def _receiver(name: str) -> Callable[..., None]:
    """Return the receiver that imports and calls the named function.

    It is cached because signals hold their receivers by weak references.
    """

    def heard(sender: type[Any], **kwargs: Any) -> None:
        # Django stores the ``id()`` of a sender. When a model class is deleted, as in tests that
        # define models, another class may get the same id and would be taken for the sender.
        if sender in _senders[name]:
            module, _, function = name.rpartition(".")
            getattr(import_module(f"{__package__}.{module}"), function)(sender=sender, **kwargs)

    return heard


# Models.


def registered_models() -> Iterable[type[Model]]:
    from .declarations.server import servers

    return [model for server in servers() for model, _ in server.models]


def granting_models() -> Mapping[type[Model], Signs]:
    """Return the models whose rows decide who may do what, with the signals to receive of each."""
    if not apps.is_installed("django.contrib.auth"):
        return {}
    from .auth import group_membership

    grants = (apps.get_model("auth", name) for name in ("Group", "Permission"))
    own = [one for one in granting_relations() if not one._meta.auto_created]
    return {
        **dict.fromkeys(group_membership.parents(), OF_PARENTS),
        group_membership.users(): OF_USERS,
        **dict.fromkeys(grants, OF_GRANTS),
        **dict.fromkeys(own, OF_THROUGHS),
    }


def granting_relations() -> Iterable[type[Any]]:
    """Return the through models of users, groups and permissions."""
    if not apps.is_installed("django.contrib.auth"):
        return []
    from .auth import group_membership

    return [one.through for one in group_membership.relations()]


def our_models() -> Mapping[type[Model], Signs]:
    """Return the models of this app whose rows decide who may do what, with their signals."""
    named = {"Token": OF_TOKENS, "Switch": OF_SWITCHES}
    return {apps.get_model("django_mcp", name): signs for name, signs in named.items()}


def hear_of_all() -> None:
    """Connect all receivers, also for models that are registered later."""
    from .declarations.server import registering
    from .models.changes import sources

    sources[:] = [registered_models, granting_models]
    for through in granting_relations():
        _connect(OF_RELATIONS, through)
    for model, signs in {**granting_models(), **our_models()}.items():
        hear_of(model, signs)
    if apps.is_installed("django_mcp.oauth"):
        hear_of(get_user_model(), OF_SIGN_INS)
    signals.class_prepared.connect(_prepared, dispatch_uid="django_mcp.prepared")
    registering[:] = [_registered]
    for model in registered_models():
        _registered(model)


_heard: WeakKeyDictionary[type[Any], set[tuple[str, str]]] = WeakKeyDictionary()


def hear_of(model: type[Any], signs: Signs) -> None:
    """Connect receivers to ``model``, its subclasses and its proxies."""
    _heard.setdefault(model, set()).update(signs)
    _connect([sign for sign in signs if sign[0] != "m2m_changed"], model)
    related = [sign for sign in signs if sign[0] == "m2m_changed"]
    for through in _throughs(model) if related else ():
        _connect(related, through)
    for kind in model.__subclasses__():
        hear_of(kind, signs)


def _connect(signs: Signs, sender: type[Any]) -> None:
    for signal, name in signs:
        _senders[name].add(sender)
        receiver, id = _receiver(name), f"django_mcp.{name}"
        getattr(signals, signal).connect(receiver, sender=sender, dispatch_uid=id)


def _throughs(model: type[Any]) -> set[type[Any]]:
    """Return the senders of ``m2m_changed`` for the model's many-to-many relations, both ways."""
    fields = model._meta.get_fields(include_hidden=True) if not model._meta.abstract else ()
    found = (
        getattr(field if field.auto_created else field.remote_field, "through", None)
        for field in fields
        if field.many_to_many
    )
    return {through for through in found if isinstance(through, type)}


def _registered(model: type[Any]) -> None:
    concrete = model._meta.concrete_model or model
    hear_of(concrete, OF_ROWS)
    for kind in (concrete, *concrete._meta.get_parent_list()):
        hear_of(kind, OF_ROWS_AND_PARENTS)


def _prepared(sender: type[Any], **kwargs: Any) -> None:
    """Connect receivers to a model class that is defined later, such as a proxy."""
    if signs := _signs_of(sender):
        hear_of(sender, signs)
    # The through model exists only once the model and its relations are resolved.
    if sender._meta.local_many_to_many:
        meta = sender._meta
        meta.apps.lazy_model_operation(_related_later, (meta.app_label, meta.model_name))


def _related_later(model: type[Any]) -> None:
    for field in model._meta.local_many_to_many:
        for end in (model, field.remote_field.model):
            # Historical models of migrations may have a name here instead of a class.
            if isinstance(end, type):
                signs = [sign for sign in _signs_of(end) if sign[0] == "m2m_changed"]
                _connect(signs, field.remote_field.through)


def _signs_of(model: type[Any]) -> set[tuple[str, str]]:
    return {sign for kind in model.__mro__ for sign in _heard.get(kind, ())}
