"""The page on the inspector: its code gives the permission."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/inspector.md"


@pytest.mark.django_db
@pytest.mark.urls("tests.admin.urls")
def test_group_gets_the_permission():
    group = Group.objects.create(name="Support")
    sam = User.objects.create_user("sam", is_staff=True)
    sam.groups.add(group)
    client = Client()
    client.force_login(sam)
    assert client.get("/admin/django_mcp/inspector/").status_code == 403
    (code,) = blocks(PAGE, "python")
    exec(code, {})
    assert client.get("/admin/django_mcp/inspector/").status_code == 200
