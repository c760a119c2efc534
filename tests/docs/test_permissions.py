"""The page on permissions: its signal receiver announces changes of another permission backend."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db.models.signals import post_delete, post_save

from django_mcp.changes import capture
from django_mcp.models import Token

from .pages import ROOT, blocks

PAGE = ROOT / "docs/reference/permissions.md"


@pytest.fixture
def page_code():
    """The code of the page, with Token as the row of the permission backend."""
    (code,) = blocks(PAGE, "python")
    guardian = "from guardian.models import GroupObjectPermission, UserObjectPermission"
    assert guardian in code
    code = code.replace(
        guardian,
        "from django.contrib.contenttypes.models import ContentType as GroupObjectPermission\n"
        "from django_mcp.models import Token as UserObjectPermission",
    )
    found: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), found)
    yield found
    for signal in (post_save, post_delete):
        for sender in (Token, ContentType):
            assert signal.disconnect(found["object_permission_changed"], sender=sender)


@pytest.mark.django_db
def test_changes_of_another_permission_backend_are_announced(
    page_code, monkeypatch, django_capture_on_commit_callbacks
):
    announced: list[Any] = []
    monkeypatch.setattr(capture, "notify_this_process", announced.extend)
    user = User.objects.create_user("alice")
    with django_capture_on_commit_callbacks(execute=True):
        Token.make(user, "t")
    assert announced == [("user", str(user.pk))]
