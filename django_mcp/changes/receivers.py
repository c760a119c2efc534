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
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db.models import signals
from django.db.models.fields.related import lazy_related_operation
from django.utils.module_loading import import_string

if TYPE_CHECKING:
    from django.db.models import Model

# The signal, and the function that receives it, as "module.function" of ``django_mcp``.
SignalReceivers = Iterable[tuple[str, str]]
# No receiver is connected without a sender: with one Django fetches rows before it deletes them,
# and selects the existing rows before it adds a many-to-many relation.
ROW_RECEIVERS: SignalReceivers = [("post_delete", "changes.capture.row_changed")]
# A row of a parent is a part of the registered model's row. When Django deletes it, the registered
# model's row sends a signal of its own.
ROW_AND_PARENT_RECEIVERS: SignalReceivers = [
    ("post_save", "changes.capture.row_changed"),
    ("m2m_changed", "changes.capture.relation_changed"),
]
USER_PARENT_RECEIVERS: SignalReceivers = [
    ("pre_save", "changes.permission_changes.remember_flags"),
    ("post_save", "changes.permission_changes.user_saved"),
]
USER_RECEIVERS: SignalReceivers = [
    *USER_PARENT_RECEIVERS,
    ("post_delete", "changes.permission_changes.user_deleted"),
]
SIGN_IN_RECEIVERS: SignalReceivers = [
    ("pre_save", "oauth.revocation.note_password"),
    ("post_save", "oauth.revocation.revoke"),
]
GRANT_RECEIVERS: SignalReceivers = [
    ("post_save", "changes.permission_changes.grant_saved"),
    ("post_delete", "changes.permission_changes.grant_deleted"),
]
# For the project's own through models of users, groups and permissions.
THROUGH_MODEL_RECEIVERS: SignalReceivers = [
    ("pre_save", "changes.permission_changes.remember_member"),
    ("post_save", "changes.permission_changes.membership_changed"),
    ("post_delete", "changes.permission_changes.membership_changed"),
]
RELATION_RECEIVERS: SignalReceivers = [
    ("m2m_changed", "changes.permission_changes.relation_changed")
]  # changes of the same relations by ``.add()`` and the like
TOKEN_RECEIVERS: SignalReceivers = [
    ("post_save", "changes.permission_changes.token_saved"),
    ("post_delete", "changes.permission_changes.token_deleted"),
]
SWITCH_RECEIVERS: SignalReceivers = [
    ("post_save", "changes.permission_changes.switch_changed"),
    ("post_delete", "changes.permission_changes.switch_changed"),
]


_senders: defaultdict[str, WeakSet[type[Any]]] = defaultdict(WeakSet)  # of each receiver, by name


@cache
def _receiver(name: str) -> Callable[..., None]:
    """Return the receiver that imports and calls the named function.

    It is cached because signals hold their receivers by weak references.
    """
    senders, path = _senders[name], f"django_mcp.{name}"

    def receive(sender: type[Any], **kwargs: Any) -> None:
        # Django stores the ``id()`` of a sender. When a model class is deleted, as in tests that
        # define models, another class may get the same id and would be taken for the sender.
        if sender in senders:
            _imported(path)(sender=sender, **kwargs)

    return receive


_imported = cache(import_string)  # each save would look up the module otherwise


# Models.


def registered_models() -> Iterable[type[Model]]:
    from ..declarations.server import servers

    return [model for server in servers() for model, _ in server._registered_models]


def granting_models() -> Mapping[type[Model], SignalReceivers]:
    """Return the models whose rows grant permissions, with their signal receivers."""
    if not apps.is_installed("django.contrib.auth"):
        return {}
    from ..auth import group_membership

    grants = (apps.get_model("auth", name) for name in ("Group", "Permission"))
    own_through_models = [one for one in granting_relations() if not one._meta.auto_created]
    return {
        **dict.fromkeys(group_membership.parents(), USER_PARENT_RECEIVERS),
        group_membership.users(): USER_RECEIVERS,
        **dict.fromkeys(grants, GRANT_RECEIVERS),
        **dict.fromkeys(own_through_models, THROUGH_MODEL_RECEIVERS),
    }


def granting_relations() -> Iterable[type[Any]]:
    """Return the through models of users, groups and permissions."""
    if not apps.is_installed("django.contrib.auth"):
        return []
    from ..auth import group_membership

    return [one.through for one in group_membership.relations()]


def our_models() -> Mapping[type[Model], SignalReceivers]:
    """Return the models of this app whose rows grant access, with their signal receivers."""
    named = {"Token": TOKEN_RECEIVERS, "Switch": SWITCH_RECEIVERS}
    return {apps.get_model("django_mcp", name): receivers for name, receivers in named.items()}


def connect_all() -> None:
    """Connect all receivers, also for models that are registered later."""
    from ..declarations.registry import model_registered
    from ..models import sources

    sources[:] = [registered_models, granting_models]
    for through in granting_relations():
        _connect(RELATION_RECEIVERS, through)
    for model, receivers in {**granting_models(), **our_models()}.items():
        connect_receivers(model, receivers)
    if apps.is_installed("django_mcp.oauth"):
        connect_receivers(get_user_model(), SIGN_IN_RECEIVERS)
    signals.class_prepared.connect(_class_prepared, dispatch_uid="django_mcp.prepared")
    model_registered[:] = [_registered]
    for model in registered_models():
        _registered(model)


_connected: WeakKeyDictionary[type[Any], set[tuple[str, str]]] = WeakKeyDictionary()


def connect_receivers(model: type[Any], receivers: SignalReceivers) -> None:
    """Connect receivers to ``model``, its subclasses and its proxies."""
    _connected.setdefault(model, set()).update(receivers)
    _connect([receiver for receiver in receivers if receiver[0] != "m2m_changed"], model)
    related = [receiver for receiver in receivers if receiver[0] == "m2m_changed"]
    for through in _through_models(model) if related else ():
        _connect(related, through)
    for kind in model.__subclasses__():
        connect_receivers(kind, receivers)


def _connect(receivers: SignalReceivers, sender: type[Any]) -> None:
    for signal, name in receivers:
        _senders[name].add(sender)
        receiver, id = _receiver(name), f"django_mcp.{name}"
        getattr(signals, signal).connect(receiver, sender=sender, dispatch_uid=id)


def _through_models(model: type[Any]) -> set[type[Any]]:
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
    connect_receivers(concrete, ROW_RECEIVERS)
    for kind in (concrete, *concrete._meta.get_parent_list()):
        connect_receivers(kind, ROW_AND_PARENT_RECEIVERS)


def _class_prepared(sender: type[Any], **kwargs: Any) -> None:
    """Connect receivers to a model class that is defined later, such as a proxy."""
    if receivers := _receivers_of(sender):
        connect_receivers(sender, receivers)
    for field in sender._meta.local_many_to_many:
        ends = (field.remote_field.model, field.remote_field.through)
        # Either may be the name of a model that is defined later.
        later = [end for end in ends if isinstance(end, str)]
        lazy_related_operation(_connect_relation, sender, *later, field=field)


def _connect_relation(model: type[Model], *later: type[Model], field: Any) -> None:
    through = field.remote_field.through  # None for a swapped model
    for end in (model, field.remote_field.model) if through else ():
        _connect([one for one in _receivers_of(end) if one[0] == "m2m_changed"], through)


def _receivers_of(model: type[Any]) -> set[tuple[str, str]]:
    return {receiver for kind in model.__mro__ for receiver in _connected.get(kind, ())}
