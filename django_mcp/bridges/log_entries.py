"""
What was done to a row, told to the people who run the site, where the admin would tell it.

Rule: an entry names the fields that changed and holds none of their values; it is written in the
transaction of what it tells of. Without the admin, or without a user, there is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db.models import Model
from django.utils.text import capfirst
from django.utils.translation import override

if TYPE_CHECKING:
    from ..declare.requests import Request

# Those of django.contrib.admin.models, which is not there to import where the admin is not.
ADDITION, CHANGE, DELETION = 1, 2, 3
ADDED: list[Any] = [{"added": {}}]


def changed(model: type[Model], names: Iterable[str]) -> list[Any]:
    """The message of a change: the fields' labels, untranslated, as the admin keeps them."""
    with override(None):
        labels = [_label(model._meta.get_field(name)) for name in names]
    return [{"changed": {"fields": labels}}]


def _label(field: Any) -> str:
    return str(capfirst(getattr(field, "verbose_name", field.name)))


def logged(request: Request, row: Model, flag: int, message: list[Any] | str = "") -> None:
    """Write that ``request``'s user did this to ``row``; before it is deleted, if it is."""
    user = request.user
    if user.pk is None or not isinstance(user, get_user_model()):
        return
    if not apps.is_installed("django.contrib.admin"):
        return
    from django.contrib.admin.models import LogEntry

    LogEntry.objects.log_actions(user.pk, [row], flag, message, single_object=True)
