"""The types that mypy infers for the return values of ``django_mcp``."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, assert_type

from django import forms
from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _
from pydantic import BaseModel

import django_mcp as mcp
from django_mcp import Request, Tool, register
from django_mcp.bridges.forms import FormTool

from .models import Company, Invoice


class Size(Enum):
    SMALL = 1


class State(TextChoices):
    PAID = "paid"


class Address(BaseModel):
    street: str


@dataclass
class Person:
    name: str


class ContactForm(forms.Form):
    text = forms.CharField()


class InvoiceForm(forms.ModelForm[Invoice]):
    pass


def asked(request: Request) -> None:
    assert_type(request.elicit("Sure?"), bool)
    assert_type(request.elicit(_("Sure?"), bool), bool)
    assert_type(request.elicit("How many?", int, key="number", timeout=5), int)
    assert_type(request.elicit("How many?", schema=int, default=None), int | None)
    assert_type(request.elicit("Sure?", default="unknown"), bool | str)
    assert_type(request.elicit("Which?", Size), Size)
    assert_type(request.elicit("Which?", State), State)
    assert_type(request.elicit("Which?", list[str]), list[str])
    assert_type(request.elicit("Where?", Address), Address)
    assert_type(request.elicit("Who?", Person), Person)
    assert_type(request.elicit("What?", ContactForm), dict[str, Any])
    assert_type(request.elicit("What?", ContactForm()), dict[str, Any])
    assert_type(request.elicit("What?", InvoiceForm, default=None), dict[str, Any] | None)
    assert_type(request.elicit("What?", {"type": "object", "properties": {}}), dict[str, Any])
    assert_type(request.elicit("Pay", url="https://shop.example/pay"), bool)
    tone: Literal["kind", "firm"] = request.elicit("Tone?", Literal["kind", "firm"])
    assert_type(request.once("charge", lambda: 5), int)
    assert_type(request.once("charge", charge), str)
    assert_type(request.roots(), list[mcp.Root])
    assert_type(request.sample(tone), mcp.Sampled)


async def charge() -> str:
    return "charge"


async def asked_in_the_loop(request: Request) -> None:
    assert_type(await request.aelicit("Sure?"), bool)
    assert_type(await request.aelicit("How many?", int, default=None), int | None)
    assert_type(await request.aelicit("Where?", Address), Address)
    assert_type(await request.aelicit("What?", ContactForm), dict[str, Any])
    assert_type(await request.aonce("charge", lambda: 5), int)
    assert_type(await request.aonce("charge", charge), str)


class Close(Tool):
    def handle(self, request: Request) -> str:
        return "closed"


class Invoices(mcp.ModelResource):
    fields = ["number"]


class Contact(FormTool):
    pass


class Companies(mcp.ModelResource):
    fields = ["name"]


assert_type(register(Close), type[Close])
assert_type(register(Close, server=mcp.server), type[Close])
assert_type(mcp.server.register(Close), type[Close])
assert_type(register(Invoice, Invoices), type[Invoices])
assert_type(mcp.server.register(Invoice, Invoices), type[Invoices])
assert_type(register(ContactForm, Contact), type[Contact])
assert_type(register(Invoice)(Invoices), type[Invoices])
assert_type(register(ContactForm)(Contact), type[Contact])
assert_type(mcp.server.register(Invoice, Company)(Invoices), type[Invoices])
register(Invoice, Company, Companies)


@mcp.server.register
class Registered(Tool):
    def handle(self, request: Request) -> str:
        return "done"
