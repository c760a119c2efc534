"""The page on views: its classes can be served."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django import forms
from django.http import HttpResponse
from django.urls import include, path

from django_mcp.declarations import server as servers

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/views.md"


def page(request, pk=None):
    """A page."""
    return HttpResponse("a page")


class CloseForm(forms.Form):
    reason = forms.CharField()


class InvoiceFilter(forms.Form):
    status = forms.CharField(required=False)


URLCONF = ModuleType("urls")
URLCONF.urlpatterns = [  # type: ignore[attr-defined]
    path("", include(([
        path("", page, name="invoice-list"),
        path("<int:pk>/", page, name="invoice-detail"),
        path("<int:pk>/close/", page, name="invoice-close"),
    ], "billing"))),
]  # fmt: skip


@pytest.mark.parametrize("code", blocks(PAGE, "python"))
def test_declarations_of_the_page_can_be_served(code, server, settings, monkeypatch):
    settings.ROOT_URLCONF, settings.ALLOWED_HOSTS = URLCONF, ["*"]
    monkeypatch.setattr(servers, "default_server", server)
    namespace: dict[str, Any] = {"CloseForm": CloseForm, "InvoiceFilter": InvoiceFilter}
    exec(compile(code, "<views.md>", "exec", dont_inherit=True), namespace)
    # The page's app and its permissions are not installed here.
    assert {message.id for message in server.check()} <= {"django_mcp.W011"}
    catalog = server._catalog
    assert catalog.tools
    assert set(catalog.templates) <= {"view://billing/invoice-detail/{pk}"}
