"""The page on permissions: what it connects tells as it says."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models.signals import post_delete, post_save

from django_mcp.changes import capture
from django_mcp.models import Token

from .pages import ROOT, blocks

PAGE = ROOT / "docs/reference/permissions.md"


@pytest.fixture
def shown():
    """A token stands for a row of an object-permission backend: it has a user."""
    (code,) = blocks(PAGE, "python")
    code = code.replace("guardian.models import User", "django_mcp.models import Token as User")
    found: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), found)
    yield found
    for signal in (post_save, post_delete):
        assert signal.disconnect(found["rights_changed"], sender=Token)


@pytest.mark.django_db
def test_rows_of_another_backend_are_told(shown, monkeypatch, django_capture_on_commit_callbacks):
    told: list[Any] = []
    monkeypatch.setattr(capture, "notify_this_process", told.extend)
    user = User.objects.create_user("alice")
    with django_capture_on_commit_callbacks(execute=True):
        Token.make(user, "t")
    assert told == [("user", str(user.pk))]
