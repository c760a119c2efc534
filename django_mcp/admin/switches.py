"""
Admin of the kill switches, and the page that shows who may do what.

A row switches something off, for everybody, a group, an OAuth client, or both. With a rate it
limits the calls instead. Deleting the row ends what it does. Adding and deleting need a permission
each, and the admin's log keeps who did it. The page of decisions distinguishes hidden from missing
things, so it requires the permissions to view users and switches. Only superusers see decisions on
superusers.

Django imports this module for every command. Modules that import pydantic are imported when the
page of decisions is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django import forms
from django.apps import apps
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import FieldDoesNotExist, PermissionDenied
from django.db.models import CharField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from ..auth.scopes import offered
from ..declarations.server import Server, server_named, servers
from ..declarations.throttles import RATE_HINT, cache_problem, parse_rate
from ..models import Switch
from .log import AdminPaginator, client_exists, known_values_filter, server_names

if TYPE_CHECKING:
    from ..management.access_report import AccessReportRow

    ModelAdmin = admin.ModelAdmin[Switch]
else:
    ModelAdmin = admin.ModelAdmin

# Kinds of declarations, as ``access_report`` names them.
KINDS = {
    "tools": _("Tools"), "model tools": _("Model tools"), "resources": _("Resources"),
    "templates": _("Resource templates"), "prompts": _("Prompts"),
}  # fmt: skip


def servers_with_declarations() -> list[Server]:
    return [server for server in servers() if not server._is_empty]


def switch_choices() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Yield what can be switched off or limited, by server, as pairs of a value and a label."""
    from ..management.access_report import declarations_of

    for server in servers_with_declarations():
        choices: list[tuple[str, Any]] = [(f"{server.name}|", _("everything"))]
        marks = dict.fromkeys(thing._qualified_name for _kind, thing in declarations_of(server))
        choices += [(f"{server.name}|{mark}", mark) for mark in marks]
        yield server.public_name, choices


def users_have_groups() -> bool:
    """Whether the project's users can be members of Django's groups."""
    try:
        found = get_user_model()._meta.get_field("groups")
    except FieldDoesNotExist:
        return False
    return found.related_model is Group


def effect_of(switch: Switch) -> Any:
    """Return what a kill switch does, as text."""
    if not switch.rate:
        return _("off")
    try:
        parse_rate(switch.rate)
    except ValueError:  # written by other code than the form
        return _("off, because {} is not a rate").format(switch.rate)
    return _("limited to {}").format(switch.rate)


class SwitchForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form for a new kill switch: what to switch off or limit, for whom, and why.

    The fields of groups and OAuth clients exist if the project has them.
    """

    what = forms.ChoiceField(label=_("Switch off or limit"))
    group = forms.ModelChoiceField(
        Group.objects.order_by("name"), label=_("Group"), required=False,
        empty_label=_("everybody"),
        help_text=_("Apply it to the members of this group only."),
    )  # fmt: skip
    client = forms.CharField(
        label=_("OAuth client"), required=False, max_length=255,
        help_text=_(
            "The client id. Apply it to callers who use this client only. With a group too, it "
            "applies to members of the group who use this client."
        ),
    )  # fmt: skip

    class Meta:
        model = Switch
        fields = ("group", "client", "rate", "reason")
        help_texts = {  # noqa: RUF012 - Django reads it
            "rate": _(
                "Leave it empty to switch off. With a rate, such as 10/min, calls are limited "
                "instead: all calls to which this applies count together, and nothing is hidden."
            ),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["what"].choices = list(switch_choices())  # type: ignore[attr-defined]
        if not users_have_groups():
            del self.fields["group"]
        if not apps.is_installed("oauth2_provider"):
            del self.fields["client"]

    def clean_group(self) -> str:
        group = self.cleaned_data["group"]
        return "" if group is None else str(group.pk)

    def clean_client(self) -> str:
        """Reject an unknown client id: the switch would apply to nobody."""
        client = str(self.cleaned_data["client"])
        if client and not client_exists(client):
            raise forms.ValidationError(_("There is no OAuth client with this client id."))
        return client

    def clean_rate(self) -> str:
        rate = str(self.cleaned_data["rate"])
        if rate:
            try:
                parse_rate(rate)
            except ValueError as error:
                text = _("This is not a rate. {}").format(_(RATE_HINT))
                raise forms.ValidationError(text) from error
        return rate

    def clean(self) -> dict[str, Any]:
        """Reject what is switched off or limited already, because the row must be unique."""
        data = self.cleaned_data
        if self.errors:
            return data
        server, _bar, thing = str(data["what"]).partition("|")
        self.instance.server, self.instance.thing = server, thing
        row = {"server": server, "thing": thing}
        row |= {"group": data.get("group", ""), "client": data.get("client", "")}
        if Switch.objects.filter(**row).exists():
            raise forms.ValidationError(
                _("This is already switched off or limited. Delete that kill switch first.")
            )
        return data


class SwitchAdmin(ModelAdmin):
    list_display = ("name", "server", "audience", "effect", "reason", "since", "by")
    list_filter = (known_values_filter("server", _("server"), server_names),)
    list_select_related = ("by",)
    fields = ("what", "group", "client", "rate", "reason")
    readonly = ("server", "thing", "audience", "effect", "reason", "since", "by")
    change_list_template = "django_mcp/admin/switches.html"
    show_full_result_count, paginator = False, AdminPaginator

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Switch]:
        # The key of a group is stored as text.
        groups = Group.objects.annotate(key=Cast("pk", CharField())).filter(key=OuterRef("group"))
        return super().get_queryset(request).annotate(_group=Subquery(groups.values("name")[:1]))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is not None:
            return self.readonly
        known = SwitchForm().fields  # without those that this project does not have
        return [name for name in self.fields if name in known]

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        if obj is None:
            kwargs |= {"form": SwitchForm, "fields": SwitchForm.Meta.fields}
        return super().get_form(request, obj, change, **kwargs)

    def save_model(self, request: HttpRequest, obj: Switch, form: Any, change: bool) -> None:
        obj.by = request.user  # type: ignore[assignment]
        super().save_model(request, obj, form, change)
        if obj.rate and cache_problem("default", is_debug=settings.DEBUG):
            text = _(
                "The cache “default” cannot count calls for all processes together, so more calls "
                "than the limit may be admitted."
            )
            self.message_user(request, text, messages.WARNING)

    @admin.display(description=_("declaration"), ordering="thing")
    def name(self, switch: Switch) -> Any:
        return switch.thing or _("everything")

    @admin.display(description=_("applies to"))
    def audience(self, switch: Any) -> Any:
        """Whom it applies to. A deleted group is shown by its key."""
        group = switch._group or switch.group
        words = [_("the group {}").format(group)] if group else []
        words += [_("the client {}").format(switch.client)] if switch.client else []
        return ", ".join(words) or _("everybody")

    @admin.display(description=_("effect"), ordering="rate")
    def effect(self, switch: Switch) -> Any:
        return effect_of(switch)

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
    client = forms.CharField(
        label=_("OAuth client"), required=False, max_length=255,
        help_text=_("The client id. It matters only for kill switches that apply to one client."),
    )  # fmt: skip
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
        auth = client_auth(data["scopes"], data["client"])
        principal = anonymous() if user is None else Principal(user, auth)
        asked = Request(principal, server)
        with surrounded(asked):
            report = access_report(declarations_of(server), asked)
        return [replace(row, kind=str(KINDS.get(row.kind, row.kind))) for row in report]
