"""
Pages to read: for rows that the project's people look at and do not write.

Rule: no page changes a row, and what is private is fetched and shown for
superusers alone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.db.models import Model, QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin

LONGEST = 20_000  # characters of one value on a page


class ReadOnlyAdmin(ModelAdmin):
    """Lists and shows. ``private`` are fields for superusers, and the columns they show."""

    private: dict[str, str] = {}
    linked: tuple[str, ...] = ()  # by which other lists link to this one
    show_full_result_count = False
    list_per_page = 50
    ordering = ("-pk",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer(*self.private.values())

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        fields = list(super().get_fields(request, obj))
        if is_superuser(request):
            return fields
        return [name for name in fields if name not in self.private]

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """By what is offered: a filter by any other column tells, guess by guess, what it holds."""
        offered = (one[0] if isinstance(one, tuple) else one for one in self.list_filter)
        known = lookup.split(LOOKUP_SEP)[0] in {*offered, *self.linked}
        return known and super().lookup_allowed(lookup, value, request)

    def allowed(self, request: HttpRequest, codename: str) -> bool:
        user: Any = request.user
        return bool(user.has_perm(f"{self.opts.app_label}.{codename}"))

    def note(self, request: HttpRequest, rows: list[Any], flag: int, message: str = "") -> None:
        """What was done to rows, in the admin's own history."""
        LogEntry.objects.log_actions(request.user.pk, rows, flag, message)  # type: ignore[arg-type]

    def link(self, model: type[Model], text: object, **filters: Any) -> SafeString:
        """A link to a list of other rows."""
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
        address = reverse(name, current_app=self.admin_site.name)
        return format_html('<a href="{}?{}">{}</a>', address, urlencode(filters), text)


def is_superuser(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))


def shown(value: Any) -> str:
    """A value on a page: JSON, and not too much of it."""
    text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
