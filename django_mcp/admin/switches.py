"""
Admin of the kill switches, and the page that shows who may do what.

A row switches something off, and deleting the row switches it on again. Each needs its own
permission, and the admin's log keeps who did it. The page of decisions distinguishes hidden from
missing things, so it requires the permissions to view users and switches. Only superusers see
decisions on superusers.

Django imports this module for every command. Modules that import pydantic are imported when the
page of decisions is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from ..auth.scopes import offered
from ..declarations.server import Server, server_named, servers
from ..models import Switch

if TYPE_CHECKING:
    from ..management.access_report import AccessReportRow

    ModelAdmin = admin.ModelAdmin[Switch]
else:
    ModelAdmin = admin.ModelAdmin


def servers_with_declarations() -> list[Server]:
    return [server for server in servers() if not server._is_empty]


def switch_choices() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Yield what can be switched off, by server, as pairs of a form value and a label."""
    from ..management.access_report import declarations_of

    for server in servers_with_declarations():
        choices: list[tuple[str, Any]] = [(f"{server.name}|", _("everything"))]
        marks = dict.fromkeys(thing._mark for _kind, thing in declarations_of(server))
        choices += [(f"{server.name}|{mark}", mark) for mark in marks]
        yield server.public_name, choices


class SwitchForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form for a new kill switch: what to switch off, and why."""

    what = forms.ChoiceField(label=_("Switch off"))

    class Meta:
        model = Switch
        fields = ("reason",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["what"].choices = list(switch_choices())  # type: ignore[attr-defined]

    def clean_what(self) -> str:
        """Reject what is switched off already, because the row must be unique."""
        what = str(self.cleaned_data["what"])
        self.instance.server, _bar, self.instance.thing = what.partition("|")
        if Switch.objects.filter(server=self.instance.server, thing=self.instance.thing).exists():
            raise forms.ValidationError(_("This is already switched off."))
        return what


class SwitchAdmin(ModelAdmin):
    list_display = ("name", "server", "reason", "since", "by")
    list_filter = ("server",)
    list_select_related = ("by",)
    fields = ("what", "reason")
    readonly = ("server", "thing", "reason", "since", "by")
    change_list_template = "django_mcp/admin/switches.html"

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.fields if obj is None else self.readonly

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        if obj is None:
            kwargs |= {"form": SwitchForm, "fields": ("reason",)}
        return super().get_form(request, obj, change, **kwargs)

    def save_model(self, request: HttpRequest, obj: Switch, form: Any, change: bool) -> None:
        obj.by = request.user  # type: ignore[assignment]
        super().save_model(request, obj, form, change)

    @admin.display(description=_("switched off"), ordering="thing")
    def name(self, switch: Switch) -> Any:
        return switch.thing or _("everything")

    # The decisions page.

    def get_urls(self) -> list[URLPattern]:
        decide = self.admin_site.admin_view(self.decisions)
        decisions = path("decisions/", decide, name="django_mcp_switch_decisions")
        return [decisions, *super().get_urls()]  # first: Django's pattern matches every path

    def may_decide(self, request: HttpRequest) -> bool:
        users = get_user_model()._meta
        permission = f"{users.app_label}.view_{users.model_name}"
        user: Any = request.user
        return self.has_view_permission(request) and bool(user.has_perm(permission))

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        context = {"may_decide": self.may_decide(request), **(extra_context or {})}
        return super().changelist_view(request, context)

    def decisions(self, request: HttpRequest) -> HttpResponse:
        """Show what one user may do on a server with a token of these scopes, and why."""
        if not self.may_decide(request):
            raise PermissionDenied
        form = AccessReportForm(request.GET or None, by=request.user)
        report = form.access_report() if form.is_bound and form.is_valid() else None
        context = self.admin_site.each_context(request)
        context |= {"title": _("Permissions by user"), "opts": self.opts, "form": form}
        context["access_report"] = report
        return render(request, "django_mcp/admin/decisions.html", context)


class AccessReportForm(forms.Form):
    """The form of the decisions page: a user, a server and scopes."""

    user = forms.CharField(
        label=_("User"), required=False, help_text=_("Leave empty for anonymous clients.")
    )
    server = forms.ChoiceField(label=_("Server"))
    scopes = forms.MultipleChoiceField(
        label=_("Scopes"), required=False, widget=forms.CheckboxSelectMultiple,
        help_text=_("Scopes of the client's token. Without scopes, the token is not limited."),
    )  # fmt: skip

    def __init__(self, *args: Any, by: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._by = by
        fields: Any = self.fields
        fields["server"].choices = [
            (server.name, server.public_name) for server in servers_with_declarations()
        ]
        fields["scopes"].choices = [(name, f"{name}: {one}") for name, one in offered().items()]

    def clean_user(self) -> Any:
        name = self.cleaned_data["user"]
        if not name:
            return None
        users = get_user_model()
        found = users._default_manager.filter(**{users.USERNAME_FIELD: name}).first()
        if found is None:
            raise forms.ValidationError(_("There is no such user."))
        if getattr(found, "is_superuser", False) and not getattr(self._by, "is_superuser", False):
            raise forms.ValidationError(_("Only superusers may see what a superuser may do."))
        return found

    def access_report(self) -> list[AccessReportRow]:
        """Return a row for every declaration, as the server decides at this moment."""
        from ..auth.principal import Principal, anonymous
        from ..calls.execution import surrounded
        from ..declarations.request import Request
        from ..management.access_report import access_report, client_auth, declarations_of

        data = self.cleaned_data
        user, server = data["user"], server_named(data["server"])
        principal = anonymous() if user is None else Principal(user, client_auth(data["scopes"]))
        asked = Request(principal, server)
        with surrounded(asked):
            return access_report(declarations_of(server), asked)
