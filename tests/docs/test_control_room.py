"""The page on the control room: its code runs, and it names the permissions that exist."""

from __future__ import annotations

import re

from django.contrib.auth.models import Group, Permission

from django_mcp.declarations.throttles import parse_rate
from django_mcp.models import Switch

from .pages import ROOT, blocks, text

PAGE = ROOT / "docs/how-to/control-room.md"


def test_code_switches_a_tool_off_for_a_group_and_limits_a_client(db):
    group = Group.objects.create(name="interns")
    namespace = {}
    for code in blocks(PAGE, "python"):
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    namespace["switch_off_for_interns"]()
    row = Switch.objects.get()
    assert (row.thing, row.group, row.client) == ("tool:refund", str(group.pk), "")
    row.delete()
    namespace["limit_agent"]("agent")
    row = Switch.objects.get()
    assert (row.thing, row.client, row.rate) == ("", "agent", "10/min")
    assert parse_rate(row.rate) == (10, 60)


def test_permissions_of_the_page_exist(db):
    named = set(re.findall(r"`((?:view|end|cancel)_[a-z]+)`", text(PAGE)))
    known = Permission.objects.filter(content_type__app_label="django_mcp")
    assert len(named) > 4 and named <= set(known.values_list("codename", flat=True))
