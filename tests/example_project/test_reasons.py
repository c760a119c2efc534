"""Explanations of access agree with the decisions, for every permission of the atlas."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User

import django_mcp as mcp
from django_mcp.auth.principal import Principal, anonymous
from django_mcp.calls.execution import surrounded
from django_mcp.calls.visibility import visible
from django_mcp.declarations.declaration import decide
from django_mcp.management.access_report import explain_read
from example_project.atlas.models import Trip


@pytest.fixture
def principals(db):
    """Anonymous, a superuser, a user for every permission of the atlas, and one without any."""
    found = [anonymous(), Principal(User.objects.create_superuser("boss"))]
    for permission in Permission.objects.filter(content_type__app_label="atlas"):
        user = User.objects.create_user(permission.codename)
        user.user_permissions.add(permission)
        found.append(Principal(user))
    return [*found, Principal(User.objects.create_user("plain"))]


def test_reasons_agree_with_decisions(principals):
    catalog = mcp.server.ready()
    seen = set()
    for principal in principals:
        request = mcp.Request(principal, mcp.server)
        with surrounded(request):
            for owned in (catalog.tools, catalog.resources, catalog.templates, catalog.prompts):
                for thing in owned.values():
                    decision = decide(thing, request)
                    told = (thing, principal, decision.reason)
                    assert decision.allowed == thing._is_allowed(request), told
                    seen.add((type(thing), decision.allowed))
    assert len(seen) > len({kind for kind, _ in seen})  # what some may use, others may not


def test_explained_conditions_agree_with_reading(principals):
    trips = [
        Trip.objects.create(owner=one.user, title="T", starts="2026-01-01", ends="2026-01-02")
        for one in principals[1:3]
    ]
    places = [f"{kind}/{one.pk}" for one in trips for kind in ("atlas://trip", "view://trips/page")]
    for principal in principals:
        request = mcp.Request(principal, mcp.server)
        with surrounded(request):
            for uri in [*places, "atlas://trip/0", "atlas://flag/XX", "atlas://about"]:
                ways = [
                    explain_read(one, given, request) for one, given in mcp.server._catalog.at(uri)
                ]
                opened = any(all(gate.allowed for gate in gates) for gates in ways)
                assert ways and opened == (uri in visible(request, [uri])), (uri, ways)
