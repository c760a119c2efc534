from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _
from pydantic import BaseModel, Field

import django_mcp as mcp
from django_mcp.bridges.forms import FormTool
from django_mcp.bridges.views import ViewTools
from django_mcp.testing import MCPTestCase

from .models import Invoice

mcp.server.title = "The shop"
mcp.server.version = "2.1"
mcp.server.public_name = "shop"
mcp.server.instructions = "Ask."
mcp.server.page = mcp.AUTHENTICATED
mcp.server.icons = [mcp.Icon("https://shop.example/icon.png")]


def is_staff(request: mcp.Request) -> bool:
    return bool(request.user.is_staff)


@mcp.register(Invoice)
class InvoiceResource(mcp.ModelResource):
    title = _("Invoice")
    permission = mcp.AUTHENTICATED
    fields = ["number", "total"]
    search_fields = ["number"]
    filter_fields = ["total"]
    ordering = ["-number"]
    operations = ["create", "update"]
    readonly_fields = ["number"]
    operation_permissions = {"create": "billing.add_invoice", "update": is_staff}

    def get_queryset(self, request: mcp.Request) -> QuerySet[Invoice]:
        return super().get_queryset(request).filter(company__members=request.user)

    def has_object_permission(self, request: mcp.Request, obj: Invoice, action: str) -> bool:
        return obj.total < 1000

    def get_title(self, request: mcp.Request, row: Invoice) -> str:
        return row.number

    def save_model(self, request: mcp.Request, obj: Invoice, created: bool) -> None:
        super().save_model(request, obj, created)


class Report(BaseModel):
    total: Decimal


@mcp.tool(permission="billing.refund_invoice", destructive=True)
def refund(request: mcp.Request, invoice: Invoice, reason: str) -> str:
    """Refund a paid invoice."""
    if not request.elicit(f"Refund {invoice.total}?", bool):
        raise mcp.ToolError("Nothing was refunded.")
    invoice.refund(reason)
    return f"Invoice {invoice.number} was refunded."


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def convert(
    request: mcp.Request, amount: Annotated[float, Field(ge=0)], to: Literal["km", "mi"] = "km"
) -> float:
    return amount


@mcp.tool
def hand_over(request: mcp.Request, invoice: Invoice) -> Invoice:
    return mcp.trusted(invoice)


@mcp.tool
async def report(request: mcp.Request) -> Report:
    await request.aprogress(1, 2, "Half")
    answer = await request.aelicit("How many?", int)
    return Report(total=Decimal(answer))


@mcp.register
class CloseMonth(mcp.Tool):
    """Close the books for a month."""

    title = "Close"
    idempotent = True
    needs = ["elicitation"]
    icons = [mcp.Icon("https://shop.example/icon.png")]

    def has_permission(self, request: mcp.Request) -> bool:
        return is_staff(request)

    def handle(
        self, request: mcp.Request, year: int, month: Annotated[int, Field(ge=1, le=12)]
    ) -> str:
        request.progress(1, 2)
        request.log("info", {"month": month})
        return "closed"


@mcp.register
class AsyncTool(mcp.Tool):
    async def handle(self, request: mcp.Request, day: date) -> Report:
        return Report(total=Decimal(1))


@mcp.prompt
def reminder(request: mcp.Request, invoice: Invoice, tone: Literal["kind", "firm"] = "kind") -> str:
    return f"Write a {tone} reminder about {invoice.number}."


@mcp.resource("policy://{name}", permission=mcp.PUBLIC, mime_type="text/markdown", cache=3600)
def policy(request: mcp.Request, name: Annotated[str, mcp.Complete(["returns", "privacy"])]) -> str:
    return f"# {name}"


@mcp.register
class Policy(mcp.Resource):
    description = _("A policy.")

    uri = "other://{name}"

    def read(self, request: mcp.Request, name: str) -> str:
        return name


@mcp.register
class Greeting(mcp.Prompt):
    def handle(self, request: mcp.Request, name: str) -> list[mcp.Message]:
        return [mcp.Message("hello")]


back_office = mcp.Server("back-office", title="Back office")


@back_office.tool(permission=is_staff)
def reopen(request: mcp.Request, number: str) -> str:
    answers = request.ask(sure=mcp.Elicit("Sure?", bool), words=mcp.Sample("Hello"))
    kept = request.once("key", lambda: 5)
    return f"{answers} {kept + 1}"


back_office.register(Invoice, InvoiceResource)


class ContactForm(forms.Form):
    text = forms.CharField()


@mcp.register(ContactForm)
class Contact(FormTool):
    exclude = ["subject"]

    def get_form_kwargs(self, request: mcp.Request) -> dict[str, Any]:
        return {"initial": {"text": "Hello"}}

    def form_valid(self, request: mcp.Request, form: ContactForm) -> str:
        return str(form.cleaned_data["text"])


@mcp.register(Invoice)
class Drafts(mcp.ModelResource):
    uri = "draft://{pk}"
    name = "draft"
    fields = ["number", "label"]

    def label(self, row: Invoice, request: mcp.Request) -> str:
        return row.number

    def get_initial(self, request: mcp.Request) -> dict[str, Any]:
        return {"company": None}


@mcp.register
class Pages(ViewTools):
    get = ["billing:invoice-list"]
    query = {"billing:invoice-list": ContactForm}


@contextmanager
def tenant(request: mcp.Request) -> Iterator[None]:
    yield


class Tokens:
    async def verify(self, token: str, server: mcp.Server) -> mcp.Principal | None:
        return None


verifier: mcp.TokenVerifier = Tokens()


def changed(invoice: Invoice) -> None:
    mcp.notify_changed(invoice)
    mcp.notify_list_changed("tools")


class InvoiceTests(MCPTestCase):
    def test_refund(self) -> None:
        self.assertEqual(self.mcp.call("convert", amount=1.0).data, 1.0)
