"""What the shop exposes: one declaration for each kind of thing the package has to serve."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

import django_mcp as mcp

from .models import Company, Customer, Invoice

mcp.server.title = "The shop"
mcp.server.instructions = "Ask for invoices."


@mcp.register(Company)
class CompanyResource(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["name"]
    ordering = ["name"]
    listed = True

    def get_queryset(self, request):
        return super().get_queryset(request).filter(members=request.user)


@mcp.register(Customer)
class CustomerResource(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["company", "name", "email"]
    search_fields = ["name"]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(company__members=request.user)


@mcp.register(Invoice)
class InvoiceResource(mcp.ModelResource):
    """What customers owe."""

    uri = "invoice://{number}"
    permission = mcp.AUTHENTICATED
    fields = [
        "number", "customer", "customer__name", "status", "total", "issued", "paid_at", "tags",
        "attachment", "overdue",
    ]  # fmt: skip
    search_fields = ["number", "customer__name"]
    filter_fields = ["customer", "status", "issued", "paid_at"]
    ordering = ["-issued"]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(company__members=request.user)


@dataclass
class Refund:
    number: str
    amount: Decimal
    reason: str = ""


@mcp.tool(permission="shop.change_invoice", destructive=True)
def refund(
    request: mcp.Request,
    invoice: Invoice,
    reason: str,
    amount: Annotated[Decimal, Field(gt=0)] | None = None,
) -> Refund:
    """Refund a paid invoice, wholly or in part.

    Args:
        reason: Why, in a few words.
    """
    if amount is None and not request.elicit(f"Refund the whole {invoice.total}?", bool):
        raise mcp.ToolError("Nothing was refunded.")
    invoice.status = Invoice.Status.DRAFT
    invoice.save()
    return Refund(invoice.number, amount or invoice.total, reason)


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def add(request: mcp.Request, a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def slow_add(request: mcp.Request, a: int, b: int, steps: int = 3) -> int:
    """Add two numbers, saying so as it goes."""
    for step in range(steps):
        await request.aprogress(step + 1, steps, f"step {step + 1}")
        await request.alog("info", {"step": step + 1}, logger="shop")
        await asyncio.sleep(0)
    return a + b


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def chatty(request: mcp.Request, steps: int = 3) -> str:
    """Say something at every step."""
    for step in range(steps):
        request.progress(step + 1, steps)
        request.log("warning", f"step {step + 1}")
    print("this must not reach the client")
    return "done"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def wait(request: mcp.Request, seconds: float = 30) -> str:
    """Wait until cancelled."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        request.progress(time.monotonic())
        time.sleep(0.01)
    return "waited"


@mcp.tool(permission=mcp.AUTHENTICATED, read_only=True)
def open_invoices(request: mcp.Request) -> list[Invoice]:
    """The invoices that are open."""
    found = InvoiceResource.get_queryset  # the resource's own gate
    resource = request.server._catalog.find(Invoice)
    return found(resource, request).filter(status=Invoice.Status.OPEN)


@mcp.tool(permission=mcp.AUTHENTICATED, read_only=True)
async def count_invoices(request: mcp.Request, customer: Customer | None = None) -> dict[str, int]:
    """How many invoices there are."""
    found = Invoice.objects.filter(company__members=request.user)
    if customer is not None:
        found = found.filter(customer=customer)
    return {"count": await found.acount()}


@mcp.tool(permission=mcp.PUBLIC)
def fail(request: mcp.Request, how: Literal["tool", "bug", "denied", "protocol"]) -> str:
    """Fail, in one of several ways."""
    errors: dict[str, Exception] = {
        "tool": mcp.ToolError("This cannot be done on a Sunday."),
        "bug": RuntimeError("the password is hunter2"),
        "denied": PermissionError("secret"),
        "protocol": mcp.ProtocolError("Not like this", code=4711),
    }
    raise errors[how]


class Person(BaseModel):
    name: str
    age: Annotated[int, Field(ge=0)]


@mcp.tool(permission=mcp.PUBLIC)
def introduce(request: mcp.Request) -> str:
    """Ask who somebody is, and let the model greet them."""
    person = request.elicit("Who are you?", Person, key="person")
    greeting = request.sample(f"Greet {person.name}, who is {person.age}.", max_tokens=50)
    return greeting.text


@mcp.register
class Everything(mcp.Tool):
    """Ask everything at once."""

    permission = mcp.PUBLIC

    def handle(self, request: mcp.Request) -> dict[str, Any]:
        answers = request.ask(
            sure=mcp.Elicit("Sure?", bool), word=mcp.Sample("A word."), places=mcp.Roots()
        )
        roots = [root.uri for root in answers["places"]]
        return {"sure": answers["sure"], "word": answers["word"].text, "places": roots}


@mcp.register
class Pictures(mcp.Tool):
    """One of each kind of content."""

    permission = mcp.PUBLIC
    read_only = True

    def handle(self, request: mcp.Request) -> list[Any]:
        return [
            "text",
            mcp.Image(b"\x89PNG", annotations=mcp.Annotations(audience=["user"], priority=0.5)),
            mcp.Audio(b"RIFF"),
            mcp.ResourceLink("policy://returns", "returns", mime_type="text/plain"),
            mcp.EmbeddedResource("policy://returns", "Thirty days.", "text/plain"),
        ]


@mcp.resource(
    "policy://{name}", permission=mcp.PUBLIC, mime_type="text/markdown", cache=60, shared=True
)
def policy(request: mcp.Request, name: Annotated[str, mcp.Complete(["returns", "privacy"])]) -> str:
    """Our policies, one each."""
    if name not in ("returns", "privacy"):
        raise mcp.ToolError("There is no such policy.")
    return f"# {name}"


@mcp.resource("shop://opening-hours", permission=mcp.PUBLIC)
def opening_hours(request: mcp.Request) -> dict[str, str]:
    """When we are open."""
    return {"monday": "9-17"}


@mcp.prompt(permission=mcp.AUTHENTICATED)
def reminder(
    request: mcp.Request, customer: Customer, tone: Literal["kind", "firm"] = "kind"
) -> str:
    """A payment reminder in our voice."""
    return f"Write a {tone} reminder to {customer.name}."


def cities_of(request: mcp.Request, text: str, context: dict[str, str]) -> list[str]:
    cities = {"fr": ["Paris", "Lyon"], "de": ["Berlin", "Bonn"]}
    return [city for city in cities.get(context.get("country", ""), []) if city.startswith(text)]


@mcp.prompt(permission=mcp.PUBLIC)
def visit(
    request: mcp.Request,
    country: Literal["fr", "de"],
    city: Annotated[str, mcp.Complete(cities_of)],
) -> list[mcp.Message]:
    """Plan a visit."""
    return [mcp.Message(f"I want to visit {city}."), mcp.Message("When?", role="assistant")]
