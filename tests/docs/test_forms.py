"""The page on forms: its declarations can be served and used."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from django import forms
from django.contrib.auth.models import Permission

import django_mcp as mcp
from django_mcp.declarations import server as servers
from tests.shop.models import Customer, Invoice

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/forms.md"


class ContactForm(forms.Form):
    name = forms.CharField()
    mail = forms.EmailField(required=False)

    def send(self) -> None:
        """To nobody."""


class InvoiceForm(forms.ModelForm):
    class Meta:
        model = Invoice
        fields = ["number", "customer", "status", "total", "issued"]


@pytest.fixture
def declared_code(monkeypatch, server):
    """Declare the code of the page on a server, and return the remaining code."""
    monkeypatch.setattr(servers, "default_server", server)
    own = ModuleType("tests.shop.forms")
    own.__dict__.update(ContactForm=ContactForm, InvoiceForm=InvoiceForm)
    monkeypatch.setitem(sys.modules, own.__name__, own)
    for model, names in ((Customer, ["name"]), (Invoice, ["number", "total", "status"])):

        class Own(mcp.ModelResource):
            permission = mcp.AUTHENTICATED
            fields = names

            def get_queryset(self, request):
                return super().get_queryset(request).filter(company__members=request.user)

        server.register(model, Own)
    namespace: dict[str, Any] = {"__name__": "tests.shop.mcp", "__package__": "tests.shop"}
    namespace |= {"Invoice": Invoice}
    left = []
    for code in blocks(PAGE, "python"):
        if code.startswith("assert"):
            left.append(code)
        else:
            exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    return left


def test_forms_of_the_page_can_be_used(declared_code, server, connect, alice, invoice):
    alice.user_permissions.add(Permission.objects.get(codename="add_invoice"))
    given = {"number": "A-1", "customer": str(invoice.customer_id), "status": "open"}
    given |= {"total": 5, "issued": "2026-01-02"}
    accept = {"elicitation/create": lambda params: {"action": "accept", "content": given}}
    client = connect(type(alice).objects.get(pk=alice.pk), server=server, answers=accept)
    assert client.text("contact", name="Ann") == "Thank you."
    new = {"customer": invoice.customer_id, "total": "7.00", "issued": "2026-01-02"}
    made = client.call("create_invoice", number="A-2", **new)["structuredContent"]
    assert (made["number"], made["status"]) == ("A-2", "draft")
    made = client.call("bill", number="A-3", **new)["structuredContent"]
    assert (made["number"], made["status"]) == ("A-3", "open")
    edited = client.call("edit_invoice", invoice=invoice.pk, total=9)["structuredContent"]
    assert (edited["total"], edited["status"]) == ("9.00", "open")
    assert "unknown argument" in client.failure("edit_invoice", invoice=invoice.pk, number="A-9")
    assert client.text("correct", invoice=invoice.pk) == "It says 5 now."
    (code,) = declared_code
    exec(code, {"wrong": client.failure})
