"""Fixtures of the tests of REST framework views: registration, calls, and rows of two companies."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from django.core.cache import cache

from django_mcp.bridges.rest_framework import APIViewTools, ViewSetTools
from tests.shop.models import Company, Customer, Invoice

from . import api


@pytest.fixture(autouse=True)
def project(settings):
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "shop.example"]
    cache.clear()


@pytest.fixture
def expose(server):
    """Return a function that registers a viewset or view with attributes, and returns the server.

    Actions are those of the view unless they are given.
    """

    def exposed(view, listed=None, **attributes):
        is_viewset = hasattr(getattr(view, "cls", view), "get_extra_actions")
        base, name = (ViewSetTools, "actions") if is_viewset else (APIViewTools, "methods")
        given = {name: listed} if listed is not None else {}
        server.register(view, type("Exposed", (base,), given | attributes))
        return server

    return exposed


@pytest.fixture
def call(server, expose, connect, alice):
    """Return a function that calls an action as a user, and exposes it before the first call."""

    def called(view, action, /, user=alice, *, attributes=None, **arguments):
        if not server._records:
            expose(view, [action], **(attributes or {}))
        (tool,) = [tool for tool in server.ready().tools.values() if tool._entry == action]
        return connect(user, server=server).call(tool.name, **arguments)

    return called


@pytest.fixture
def foreign_invoice(bob):
    """An invoice of another company than alice's."""
    bolts = Company.objects.get(name="Bolts")
    customer = Customer.objects.create(company=bolts, name="Dora", notes="hunter2")
    return Invoice.objects.create(
        company=bolts, customer=customer, number="B-1", total=Decimal(7), issued=date(2026, 1, 3),
    )  # fmt: skip


@pytest.fixture
def more_invoices(invoice):
    """Return five invoices of alice's company."""
    for number in range(2, 6):
        Invoice.objects.create(
            company=invoice.company, customer=invoice.customer, number=f"A-{number}",
            total=Decimal(number), issued=date(2026, 1, number), status="draft",
        )  # fmt: skip
    return [*Invoice.objects.filter(company=invoice.company).order_by("number")]


ALL = ["list", "retrieve", "create", "update", "partial_update", "destroy"]


@pytest.fixture
def invoices(expose, connect, server):
    """Return a function that returns a client of a user for all actions of the invoices."""

    def client(user):
        if not server._records:
            expose(api.InvoiceViewSet, ALL)
        return connect(user, server=server)

    return client
