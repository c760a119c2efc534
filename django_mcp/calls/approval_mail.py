"""Mail to the people who may approve a call. It contains no arguments, only a link to the admin."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from django.conf import settings as django_settings
from django.contrib.auth import get_backends
from django.core.mail import send_mass_mail
from django.urls import NoReverseMatch, reverse
from django.utils import translation
from django.utils.translation import gettext as _

from ..conf import settings
from ..models import Approval
from ..storage.approvals import database
from .callers import caller_text, usernames

MAX_RECIPIENTS = 100


def send_approval_mail(pk: int) -> None:
    """Send a mail about a request to each approver. It blocks, so call it in a thread."""
    approval = Approval._base_manager.using(database()).select_related("user").filter(pk=pk).first()
    if approval is None:
        return
    with translation.override(django_settings.LANGUAGE_CODE):
        subject = _("Approval needed: %s") % approval.tool
        body = _(
            "%(user)s wants to call the tool %(tool)s, and somebody else has to approve the call.\n"
            "\n"
            "%(link)s\n"
            "\n"
            "The page shows the arguments of the call. If you do not decide by %(expires)s, the "
            "call is not made."
        ) % {
            "user": caller_text(
                "" if approval.user is None else approval.user.get_username(),
                approval.impersonator,
                usernames([approval.impersonator]),
            ),
            "tool": approval.tool,
            "link": _link(approval),
            "expires": f"{approval.expires:%Y-%m-%d %H:%M %Z}".strip(),
        }
    # One message for each recipient, so that they do not see each other's addresses.
    addresses = list(islice(recipients(approval), MAX_RECIPIENTS))
    if addresses:
        send_mass_mail([(subject, body, None, [address]) for address in addresses])


def _link(approval: Approval) -> str:
    try:
        path = reverse("admin:django_mcp_approval_change", args=[approval.pk])
    except NoReverseMatch:  # the project does not use the admin
        return ""
    return f"{str(settings.URL).rstrip('/')}{path}"


def recipients(approval: Approval) -> Iterator[str]:
    """Yield the addresses of the active users who may decide."""
    seen = set[Any]()
    for backend in get_backends():
        if not hasattr(backend, "with_perm"):
            continue
        users = backend.with_perm(approval.permission, is_active=True, include_superusers=True)
        for user in users.order_by("pk"):
            address = getattr(user, user.get_email_field_name(), "")
            if user.pk in seen:
                continue
            seen.add(user.pk)
            if address and not approval.is_involved(user) and approval.is_visible_to(user):
                yield address
