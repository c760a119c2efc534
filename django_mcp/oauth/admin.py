"""
Admin of OAuth clients, consents and activity.

All pages are read-only and show no secrets or tokens. Blocking, unblocking and revoking need the
"change" permission, and deleting unused clients needs the "delete" permission.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, DELETION
from django.contrib.auth import get_user_model
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from oauth2_provider.models import get_application_model

from ..admin.log import ReadOnlyAdmin
from .authorization_request import displayable, in_ascii
from .models import Activity, ClientProfile, Consent, Source
from .registration_limits import delete_if_stale
from .revocation import revoke_client, revoke_consents


class OAuthAdmin(ReadOnlyAdmin):
    """Base of read-only admins with actions."""

    def has_end_permission(self, request: HttpRequest) -> bool:
        """Whether the user may run actions with ``permissions=["end"]``."""
        return self.has("change", request)

    def has(self, action: str, request: HttpRequest) -> bool:
        return self.has_perm(request, f"{action}_{self.opts.model_name}")

    def record_action(
        self, request: HttpRequest, rows: list[Any], note: str | Promise, message: str
    ) -> None:
        """Write an action to the admin's history, and show a message to the user."""
        self.log_action(request, rows, CHANGE if note else DELETION, note)
        self.message_user(request, message, messages.SUCCESS)


class IsSetListFilter(admin.EmptyFieldListFilter):
    """List filter for dates: all, not set, set."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        labels = (_("All"), _("No"), _("Yes"))
        for choice, label in zip(super().choices(changelist), labels, strict=True):
            yield {**choice, "display": label}


@admin.register(ClientProfile)
class ClientProfileAdmin(OAuthAdmin):
    change_list_template = "django_mcp_oauth/admin_clients.html"
    list_display = (
        "display_name", "source", "host", "created", "last_authorized", "last_used", "blocked",
        "consents", "application",
    )  # fmt: skip
    list_filter = (
        "source",
        ("blocked", IsSetListFilter),
        ("last_authorized", IsSetListFilter),
        "created",
    )
    search_fields = ("name", "client_id")
    fields = (
        "client_id", "display_name", "source", "host", "application", "consents", "redirect_uris",
        "client_uri", "logo_uri", "application_type", "auth_method", "jwks_uri", "created",
        "fetched", "last_authorized", "last_used", "blocked",
    )  # fmt: skip
    actions = ("block", "unblock", "revoke", "forget")
    object_actions = {
        "block": _("Block this client and revoke its tokens"),
        "unblock": _("Unblock this client"),
        "revoke": _("Revoke all tokens of this client"),
    }

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        owner = f"user__{get_user_model().USERNAME_FIELD}"
        return _with_application(super().get_queryset(request), application_pk="pk", owner=owner)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        add_url = {"add_url": self._add_url(request)}
        return super().changelist_view(request, add_url | (extra_context or {}))

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        url = self.kill_switch_url(request, context["original"].client_id)
        context = {"kill_switch_url": url, **context}
        return super().render_change_form(request, context, *args, **kwargs)

    def _add_url(self, request: HttpRequest) -> str | None:
        """Return the URL at which to register a client by hand; None without permission."""
        model = get_application_model()
        url = self.url(model, "add")
        can_add = url and self.admin_site.get_model_admin(model).has_add_permission(request)
        return url if can_add else None

    def has_forget_permission(self, request: HttpRequest) -> bool:
        return self.has("delete", request)

    # Actions.

    @admin.action(
        description=_("Block selected clients and revoke their tokens"), permissions=["end"]
    )
    def block(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        """Block clients and revoke their tokens.

        The block comes first: a token that is issued before the revocation ends is not accepted.
        """
        rows = list(queryset.filter(blocked=None))
        _update(rows, blocked=timezone.now())
        for row in rows:
            revoke_client(row.client_id)
        message = ngettext("%d client was blocked.", "%d clients were blocked.", len(rows))
        self.record_action(request, rows, _("Blocked."), message % len(rows))

    @admin.action(description=_("Unblock selected clients"), permissions=["end"])
    def unblock(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        """Unblock clients, so that they may ask users again.

        First revoke the tokens that were issued while the clients were being blocked.
        """
        rows = list(queryset.filter(blocked__isnull=False))
        for row in rows:
            revoke_client(row.client_id)
        _update(rows, blocked=None)
        message = ngettext("%d client was unblocked.", "%d clients were unblocked.", len(rows))
        self.record_action(request, rows, _("Unblocked."), message % len(rows))

    @admin.action(description=_("Revoke all tokens of selected clients"), permissions=["end"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        rows = list(queryset)
        for row in rows:
            revoke_client(row.client_id)
        message = ngettext(
            "The tokens of %d client were revoked.",
            "The tokens of %d clients were revoked.",
            len(rows),
        )
        self.record_action(request, rows, _("All tokens revoked."), message % len(rows))

    @admin.action(
        description=_("Delete the unused ones of the selected clients"), permissions=["forget"]
    )
    def forget(self, request: HttpRequest, queryset: QuerySet[ClientProfile]) -> None:
        rows = {row.client_id: row for row in queryset}
        deleted = [rows[client_id] for client_id in delete_if_stale(list(rows))]
        message = ngettext("%d client was deleted.", "%d clients were deleted.", len(deleted))
        self.record_action(request, deleted, "", message % len(deleted))

    # Columns.

    @admin.display(description=_("name"), ordering="name")
    def display_name(self, row: ClientProfile) -> str:
        return displayable(row.name) or row.client_id

    @admin.display(description=_("metadata document"))
    def host(self, row: Any) -> str:
        if row.source == Source.MANUAL and row.owner:
            return str(row.owner)
        labels = {Source.MANUAL: _("this site"), Source.DCR: _("unverified")}
        label = labels.get(Source(row.source))
        return str(label or in_ascii(urlsplit(row.client_id).hostname or ""))

    @admin.display(description=_("consents"))
    def consents(self, row: ClientProfile) -> str:
        if (url := self.url(Consent, "changelist")) is None:
            return "-"
        query = urlencode({"client_id": row.client_id})
        return format_html('<a href="{}?{}">{}</a>', url, query, _("show"))

    @admin.display(description=_("application"))
    def application(self, row: Any) -> str:
        """A link to the application in django-oauth-toolkit's admin."""
        if row.application_pk is None:
            return "-"
        url = self.url(get_application_model(), "change", row.application_pk)
        return (
            format_html('<a href="{}">{}</a>', url, row.application_pk)
            if url
            else row.application_pk
        )

    @admin.display(description=_("redirect URIs"))
    def redirect_uris(self, row: Any) -> str:
        applications = get_application_model()._default_manager.filter(pk=row.application_pk)
        uris = (applications.values_list("redirect_uris", flat=True).first() or "-").split()
        return format_html_join(mark_safe("<br>"), "{}", ((uri,) for uri in uris))


def _with_application(rows: QuerySet[Any], **columns: str) -> QuerySet[Any]:
    """Annotate rows with columns of their client's application, by subqueries."""
    applications = get_application_model()._default_manager.filter(client_id=OuterRef("client_id"))
    annotated: QuerySet[Any] = rows.annotate(
        **{name: Subquery(applications.values(column)[:1]) for name, column in columns.items()}
    )
    return annotated


def _update(rows: list[ClientProfile], **columns: Any) -> None:
    ClientProfile.objects.filter(pk__in=[row.pk for row in rows]).update(**columns)


@admin.register(Consent)
class ConsentAdmin(OAuthAdmin):
    list_display = (
        "user", "client", "resource", "scope_list", "redirect_host", "granted", "revoked",
    )  # fmt: skip
    list_filter = (("revoked", IsSetListFilter), "granted")
    list_select_related = ("user",)
    linked = ("client_id",)
    fields = (
        "user", "client", "client_id", "resource", "scope_list", "redirect_host", "granted",
        "revoked",
    )  # fmt: skip
    actions = ("revoke",)
    object_actions = {"revoke": _("Revoke this consent and its tokens")}

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        return [f"user__{get_user_model().USERNAME_FIELD}", "client_id", "resource"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return _with_application(super().get_queryset(request), client_name="name")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Forbid deletion on the consent's own pages, where it can only be revoked.

        Deleting a user deletes their consents, and needs the permission to revoke them.
        """
        match = request.resolver_match
        here = match is not None and getattr(match.func, "model_admin", None) is self
        return not here and self.has_end_permission(request)

    @admin.action(description=_("Revoke selected consents and their tokens"), permissions=["end"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Consent]) -> None:
        """Revoke consents and their tokens.

        Revoked consents are included: a client whose metadata document changed may still have
        tokens.
        """
        rows = list(queryset.select_related("user"))
        pairs = {(row.user_id, row.client_id): row.user for row in rows}
        for (_user, client_id), user in pairs.items():
            revoke_consents(user, client_id)
        message = ngettext(
            "%d consent was revoked.", "%d consents were revoked.",
            len(pairs),
        )  # fmt: skip
        self.record_action(request, rows, _("Revoked."), message % len(pairs))

    @admin.display(description=_("client"))
    def client(self, row: Any) -> str:
        return client_label(row)

    @admin.display(description=_("scopes"))
    def scope_list(self, row: Consent) -> str:
        return " ".join(row.scopes)


def client_label(row: Any) -> str:
    """Return the name or the id of the client of a row from ``_with_application``."""
    return displayable(row.client_name or "") or str(row.client_id)


@admin.register(Activity)
class ActivityAdmin(OAuthAdmin):
    list_display = ("user", "client", "server", "method", "name", "count", "at")
    list_filter = ("method", "at")
    list_select_related = ("user",)
    linked = ("client_id",)
    ordering = ("-at",)
    fields = ("user", "client", "client_id", "server", "method", "name", "count", "at")

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        return [f"user__{get_user_model().USERNAME_FIELD}", "client_id", "name"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return _with_application(super().get_queryset(request), client_name="name")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Forbid deletion on the activity's own pages, but allow it when a user is deleted."""
        match = request.resolver_match
        here = match is not None and getattr(match.func, "model_admin", None) is self
        return obj is not None and not here

    @admin.display(description=_("client"))
    def client(self, row: Any) -> str:
        return client_label(row)
