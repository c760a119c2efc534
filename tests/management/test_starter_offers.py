"""What ``startmcp`` offers beside models and views: REST APIs and the admin."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps

import django_mcp as mcp
from django_mcp.management import starter_file
from django_mcp.management.starter_file import (
    Offer,
    admin_models,
    generate_starter_file,
    ninja_operations,
    rest_framework_views,
)

SNIPPETS = """\
# Views of Django REST framework. Remove what clients do not need.
# from django_mcp.bridges.rest_framework import APIViewTools, ViewSetTools
#
# from .views import SnippetDetail, SnippetList, SnippetViewSet, UserViewSet, api_root
"""


@pytest.fixture
def snippets(settings):
    """Return the text of the file for the tutorial of REST framework."""
    settings.ROOT_URLCONF = "tests.snippets.views"
    settings.ALLOWED_HOSTS = ["shop.example"]
    return generate_starter_file(apps.get_app_config("snippets")).text


def uncommented(text):
    """Return the offer as code. Nested comments remain comments."""
    at = text.index("# Views of Django REST framework.")
    lines = text[at:].splitlines()[1:]
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)


def test_views_are_offered_as_comments(snippets):
    assert SNIPPETS in snippets
    offered = snippets[snippets.index(SNIPPETS) :].splitlines()
    assert all(line.startswith("#") for line in offered)
    assert "# class SnippetViewSetTools(ViewSetTools):\n" in snippets
    assert '#     actions = ["list", "retrieve"' in snippets
    assert "class SnippetsViews" not in snippets  # they are no views for ViewTools


@pytest.mark.parametrize("writes", [False, True])
def test_offer_passes_the_checks_with_and_without_writing_actions(server, snippets, writes):
    code = uncommented(snippets)
    if writes:
        code = re.sub(r"^    # (?=\S+ \+?= )", "    ", code, flags=re.MULTILINE)
    alone = code.replace("from .", "from tests.snippets.").replace("@mcp.", "@server.")
    exec(compile(alone, "mcp.py", "exec"), {"server": server})
    assert server.check() == []
    assert any(not tool.read_only for tool in server.ready().tools.values()) == writes


def app(name):
    found: Any = SimpleNamespace(name=name)
    return found


@pytest.mark.urls("tests.bridges.rest_framework.api")
def test_what_cannot_be_a_tool_is_left_out_with_the_reason(settings):
    settings.ALLOWED_HOSTS = ["shop.example"]
    offer = rest_framework_views(app("tests.bridges.rest_framework"))
    assert offer is not None
    (report,) = [one for one in offer.classes if "ReportView" in one]
    assert report.splitlines()[2:4] == ['    methods = ["get"]', "    # These write:"]
    assert "# Left out: post. The serializer of 'post' is not known" in report
    (status,) = [one for one in offer.classes if "StatusViewTools(APIViewTools)" in one]
    assert "@mcp.register(status_view)" in status
    (invoices,) = [one for one in offer.classes if "InvoiceViewSet" in one]
    assert '"remind"' in invoices.partition("# actions += ")[2]


@pytest.mark.urls("tests.bridges.rest_framework.api")
def test_views_of_other_apps_are_not_offered():
    assert rest_framework_views(app("tests.bridges.rest_framework.ap")) is None


def test_project_without_rest_framework_gets_no_offer(monkeypatch):
    monkeypatch.setattr(starter_file, "find_spec", lambda name: None)
    assert rest_framework_views(app("tests")) is None


EMPLOYEES = """\
# Operations of django-ninja. Remove what clients do not need.
# from django_mcp.bridges.ninja import NinjaTools
#
# from .api import api
#
#
# @mcp.register(api)
# class ApiTools(NinjaTools):
#     operations = ["list_employees", "get_employee"]
#     # These write:
#     # operations += ["create_employee", "update_employee", "delete_employee"]
"""


def test_operations_of_ninja_are_offered(settings):
    settings.ROOT_URLCONF = "tests.employees.api"
    settings.ALLOWED_HOSTS = ["shop.example"]
    text = generate_starter_file(apps.get_app_config("employees")).text
    assert EMPLOYEES in text and "ViewTools" not in text


@pytest.mark.urls("tests.bridges.ninja.api")
def test_operations_that_cannot_be_tools_are_left_out_with_the_reason(settings):
    settings.ALLOWED_HOSTS = ["shop.example"]
    offer = ninja_operations(app("tests.bridges.ninja"))
    assert offer is not None and offer.names == ["invoices", "customers", "api"]
    texts = dict(zip(offer.names, offer.classes, strict=True))
    assert '"list_invoices"' in texts["invoices"] and "list_invoices" not in texts["api"]
    assert 'operations = ["list_of_customers", "list_of_notes"]' in texts["customers"]
    assert "# Left out: bearer. 'bearer' has auth, which denies all calls" in texts["api"]
    assert ninja_operations(app("tests.bridges.ninj")) is None


def test_project_without_ninja_gets_no_offer(monkeypatch):
    monkeypatch.setattr(starter_file, "find_spec", lambda name: None)
    assert ninja_operations(app("tests")) is None


ADMIN = """\
# Models in Django's admin, for staff. Remove what clients do not need.
# from django.contrib import admin
#
# from .models import Question
#
#
# mcp.register_admin(
#     admin.site,
#     models=[Question],
#     prefix="admin_",
#     # These write:
#     # operations=["create", "update", "delete"],
# )
"""


@pytest.mark.parametrize("writes", [False, True])
def test_models_of_the_admin_are_offered(server, settings, writes):
    settings.ROOT_URLCONF = "tests.polls.urls"
    settings.ALLOWED_HOSTS = ["shop.example"]
    text = generate_starter_file(apps.get_app_config("polls")).text
    assert ADMIN in text
    code = "\n".join(line.removeprefix("#")[1:] for line in ADMIN.splitlines()[1:])
    code = code.replace("# operations", "operations") if writes else code
    alone = code.replace("from .", "from tests.polls.").replace("site,", "site, server=server,")
    exec(compile(alone, "mcp.py", "exec"), {"server": server, "mcp": mcp})
    assert server.check() == []
    assert len(server.ready().tools) == (5 if writes else 2)


def test_models_of_an_admin_without_urls_are_not_offered():
    assert admin_models(apps.get_app_config("polls")) is None


def test_finder_of_another_kind_can_be_added(monkeypatch):
    made = Offer("Things.", {"there": ["Thing"]}, ["class Things:\n    pass"], ["Thing"])
    monkeypatch.setattr(starter_file, "FINDERS", (lambda app: None, lambda app: made))
    found = generate_starter_file(apps.get_app_config("snippets"))
    shown = "# Things.\n# from there import Thing\n#\n#\n# class Things:\n#     pass\n"
    assert shown in found.text and found.offered == ["Thing"]
