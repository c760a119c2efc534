"""
Admin of personal access tokens: create, list and revoke.

The secret is shown once, in the response to the form that made the token. It is in no URL, message,
cookie, history or log. Only superusers make tokens for other users, because a token is as good as
that user's login.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from ..declarations.server import servers
from ..models import Token
from ..verifiers.personal_tokens import VALID, check_scopes, revoke, state
from .log import ReadOnlyAdmin, is_superuser, known_values_filter

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[Token]
else:
    ModelForm = forms.ModelForm

LIFETIME = timedelta(days=90)
STATES = {
    VALID: _("valid"), "revoked": _("revoked"), "expired": _("expired"),
    "user not active": _("user not active"),
}  # fmt: skip


def server_choices() -> list[tuple[str, Any]]:
    return [("", _("every server")), *((server.name, server.public_name) for server in servers())]


class TokenForm(ModelForm):
    """The form for a new token."""

    server = forms.ChoiceField(label=_("Server"), choices=server_choices, required=False)
    scopes = forms.CharField(
        label=_("Scopes"), required=False, help_text=_("Separated by spaces."), max_length=10_000
    )

    class Meta:
        model = Token
        fields = ("user", "name", "server", "scopes", "expires")

    def clean_user(self) -> Any:
        user = self.cleaned_data["user"]
        if not user.is_active:
            raise ValidationError(_("This user is not active, so a token would not work."))
        return user

    def clean_scopes(self) -> list[str]:
        scopes = self.cleaned_data["scopes"].split()
        check_scopes(scopes)
        return sorted(set(scopes))

    def clean_expires(self) -> datetime | None:
        expires: datetime | None = self.cleaned_data["expires"]
        if expires is not None and expires <= timezone.now():
            raise ValidationError(_("This time is in the past."))
        return expires


class TokenAdmin(ReadOnlyAdmin):
    list_display = ("name", "user", "prefix_text", "server", "state", "created", "last_used")
    list_filter = (
        ("revoked", admin.EmptyFieldListFilter),
        known_values_filter("server", _("server"), server_choices),
    )
    list_select_related = ("user",)
    raw_id_fields = ("user",)
    fields = (
        "user", "name", "prefix_text", "server", "scopes_text", "state", "created",
        "issued_by", "expires", "last_used", "revoked",
    )  # fmt: skip
    actions = ("end",)
    object_actions = {"end": _("Revoke this token")}

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        return ["name", "^prefix", f"user__{get_user_model().USERNAME_FIELD}"]

    # Permissions.

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_perm(request, "add_token")

    def has_end_permission(self, request: HttpRequest) -> bool:
        return self.has_perm(request, "revoke_token")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Deny deletion on this admin's own pages, where tokens are revoked instead.

        If a user is deleted, the tokens are deleted too, which needs the permission to revoke them.
        """
        match = request.resolver_match
        here = match is not None and getattr(match.func, "model_admin", None) is self
        return not here and self.has_end_permission(request)

    # Creation.

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        if obj is not None:
            return super().get_fields(request, obj)
        own = ["name", "server", "scopes", "expires"]
        return ["user", *own] if is_superuser(request) else own

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        if obj is None:
            kwargs["form"] = TokenForm
        return super().get_form(request, obj, change, **kwargs)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return initial data, ignoring the query string: a link could be made by someone else."""
        return {"expires": timezone.now() + LIFETIME, "user": request.user.pk}

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        context |= {"show_save_and_continue": False, "show_save_and_add_another": False}
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        user = obj.user if is_superuser(request) else request.user
        made, secret = Token.make(
            user, obj.name, scopes=obj.scopes, server=obj.server, expires=obj.expires,
            issued_by=request.user,
        )  # fmt: skip
        vars(obj).update(vars(made))
        obj.secret = secret  # shown once in ``response_add``

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        context = self.admin_site.each_context(request)
        context |= {"title": _("The new token"), "opts": self.opts, "token": obj}
        response = render(request, "django_mcp/admin/token.html", context)
        response["Referrer-Policy"] = "no-referrer"
        return response

    # Revocation.

    @admin.action(description=_("Revoke selected tokens"), permissions=["end"])
    def end(self, request: HttpRequest, queryset: QuerySet[Token]) -> None:
        valid = list(self.selected(queryset.filter(revoked=None)))
        count = revoke(Token.objects.filter(pk__in=[token.pk for token in valid]))
        self.log_action(request, valid, CHANGE, _("Revoked."))
        message = ngettext("%d token was revoked.", "%d tokens were revoked.", count)
        self.message_user(request, message % count, messages.SUCCESS)

    # Columns.

    @admin.display(description=_("token"))
    def prefix_text(self, token: Token) -> str:
        return f"{token.prefix}…"

    @admin.display(description=_("scopes"))
    def scopes_text(self, token: Token) -> str:
        return " ".join(token.scopes)

    @admin.display(description=_("state"))
    def state(self, token: Token) -> str:
        return str(STATES[state(token)])
