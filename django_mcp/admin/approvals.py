"""
Admin of calls that a second person must approve: list, dry run, approve and refuse.

The permission that a tool names in ``approval`` decides who may decide about its calls, see their
arguments and run them dry. ``view_approval`` lets staff look at all of them. The project can hide
calls from both: see ``Approval.visible_to``.

The page shows arguments so that they cannot deceive: nothing is cut off, and characters that are
invisible or change the direction of text are written as escapes.

Django imports this module for every command. Modules that import pydantic are imported when a page
is shown.
"""

from __future__ import annotations

import json
import re
import unicodedata
from itertools import chain
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.contrib.admin.utils import flatten_fieldsets, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy as _

from ..calls.callers import caller_text, usernames
from ..declarations.server import servers
from ..models import MAX_REASON_LENGTH, Approval, ApprovalStatus
from .log import ReadOnlyAdmin

if TYPE_CHECKING:
    from ..calls.dry_run import DryRun

UNDECIDED = (ApprovalStatus.PENDING, ApprovalStatus.APPROVED)


class RefusalForm(forms.Form):
    """The reason of a refusal."""

    reason = forms.CharField(
        label=_("Reason"), required=False, max_length=MAX_REASON_LENGTH,
        help_text=_("The client and its language model read it."),
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )  # fmt: skip


def plain_text(value: Any) -> str:
    """Return a JSON value as text in which every character is visible.

    Control, format and private characters, line separators, and characters that fonts show as
    nothing, are written as ``\\uXXXX``. Otherwise a text could hide a part of itself, or show it in
    another order.
    """
    text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
    return "".join(one if one == "\n" or not _is_hidden(one) else _escape(one) for one in text)


HIDDEN = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
# Marks, letters and a symbol that are invisible: the property Default_Ignorable_Code_Point of the
# Unicode Character Database without the categories above, and the blank pattern of Braille.
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in HIDDEN or bool(INVISIBLE.match(character))


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


class ApprovalAdmin(ReadOnlyAdmin):
    list_display = (
        "pk",
        "tool",
        "user_text",
        "client_text",
        "state",
        "created",
        "expires",
        "decided_by",
    )
    list_display_links = ("pk", "tool")
    list_filter = ("status",)
    list_select_related = ("user", "decided_by")

    # Permissions.

    def held_permissions(self, request: HttpRequest) -> set[str]:
        """Return the permissions to approve calls of declared tools that the user has."""
        catalogs = [server._catalog for server in servers()]
        tools = [
            tool for one in catalogs for tool in chain(one.tools.values(), one.model_tools.values())
        ]
        user: Any = request.user
        return {name for name in {tool._approval for tool in tools if tool._approval}
                if user.has_perm(name)}  # fmt: skip

    def sees_all(self, request: HttpRequest) -> bool:
        return self.has_perm(request, "view_approval")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if not request.user.is_active:
            return False
        if obj is not None and not obj.is_visible_to(request.user):
            return False
        if self.sees_all(request):
            return True
        held = self.held_permissions(request)
        return bool(held) if obj is None else obj.permission in held

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return "status", "-pk"  # those that wait come first

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = Approval.visible_to(request.user, super().get_queryset(request))
        if self.sees_all(request):
            return rows
        return rows.filter(permission__in=self.held_permissions(request))

    # The page of one call.

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show one call. A POST decides about it, or shows what it would change."""
        approval: Approval | None = self.get_object(request, unquote(object_id))
        if approval is None:
            return self._get_obj_does_not_exist_redirect(  # type: ignore[attr-defined,no-any-return]
                request, self.opts, object_id
            )
        if not self.has_view_permission(request, approval):
            raise PermissionDenied
        form = RefusalForm(request.POST if "_refuse" in request.POST else None)
        outcome = None
        if request.method == "POST":
            if objection := approval.objection(request.user):
                raise PermissionDenied(objection)
            if "_dry_run" in request.POST:
                outcome = self._dry_run(request, approval)
            elif "_approve" in request.POST or form.is_valid():
                return self._decide(request, approval, form)
        return self._page(request, approval, form, outcome)

    def _decide(self, request: HttpRequest, approval: Approval, form: RefusalForm) -> HttpResponse:
        is_approval = "_approve" in request.POST
        if is_approval:
            is_done = approval.approve(request.user)
        else:
            is_done = approval.refuse(request.user, form.cleaned_data["reason"])
        if not is_done:
            words = _("This request was decided by somebody else, has been used, or has expired.")
            self.message_user(request, words, messages.WARNING)
        elif is_approval:
            words = _(
                "The call was approved. It runs now if the client is waiting, or when the client "
                "calls again."
            )
            self.message_user(request, words, messages.SUCCESS)
        else:
            self.message_user(request, _("The call was refused."), messages.SUCCESS)
        return redirect(self.url(Approval, "changelist") or "admin:index")

    def _dry_run(self, request: HttpRequest, approval: Approval) -> DryRun | None:
        from ..calls.dry_run import can_run, dry_run

        if not (can_run(approval) and self._is_undecided(approval)):
            return None

        def visible(model: type[Model], key: Any, alias: str) -> frozenset[str] | None:
            return self._visible_fields(request, model, key, alias)

        # Before the run: the history names who acted as another user, even if the run fails.
        self.log_action(request, [approval], CHANGE, _("Dry run"))
        return dry_run(approval, visible)

    def _visible_fields(
        self, request: HttpRequest, model: type[Model], key: Any, alias: str
    ) -> frozenset[str] | None:
        """Return the fields of a row that the user can see in this admin, or None for no row."""
        model_admin = self.admin_site._registry.get(model)
        if model_admin is None or not model_admin.has_view_or_change_permission(request):
            return None
        row = model_admin.get_queryset(request).using(alias).filter(pk=key).first()
        if row is None or not model_admin.has_view_or_change_permission(request, row):
            return None
        return frozenset(map(str, flatten_fieldsets(model_admin.get_fieldsets(request, row))))

    def _is_undecided(self, approval: Approval) -> bool:
        return approval.status in UNDECIDED and not approval.is_expired

    def _page(
        self, request: HttpRequest, approval: Approval, form: RefusalForm, outcome: DryRun | None
    ) -> HttpResponse:
        from ..calls.dry_run import can_run, tool_of

        tool = tool_of(approval)
        context = self.admin_site.each_context(request) | {
            "title": _("Call %s of %s") % (approval.pk, approval.tool),
            "opts": self.opts,
            "approval": approval,
            "state": self.state(approval),
            "user": self.user_text(approval),
            "client": self.client_text(approval),
            "description": tool and (tool.description or ""),
            "arguments": [(name, plain_text(one)) for name, one in approval.arguments.items()],
            "objection": approval.objection(request.user),
            "is_undecided": self._is_undecided(approval),
            "is_pending": approval.status == ApprovalStatus.PENDING,
            "is_declared": tool is not None,
            "can_run": can_run(approval),
            "dry_run": outcome,
            "form": form,
        }
        return render(request, "django_mcp/admin/approval.html", context)

    # Columns.

    @admin.display(description=_("user"), ordering="user")
    def user_text(self, approval: Approval) -> str:
        """The user, and who acts as the user in the inspector."""
        user = "" if approval.user is None else approval.user.get_username()
        # One query for each row with an impersonator, which few rows have.
        return caller_text(user, approval.impersonator, usernames([approval.impersonator]))

    @admin.display(description=_("client"), ordering="client")
    def client_text(self, approval: Approval) -> str:
        """The application of the token, which was verified, and the name that it gave itself."""
        return " / ".join(filter(None, (approval.application, plain_text(approval.client))))

    @admin.display(description=_("status"), ordering="status")
    def state(self, approval: Approval) -> str:
        status = ApprovalStatus.EXPIRED if approval.is_expired else approval.status
        return str(ApprovalStatus(status).label)
