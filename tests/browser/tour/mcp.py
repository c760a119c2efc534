"""The tools of the tour."""

import django_mcp as mcp

from .models import Order

mcp.server.audit = True
mcp.server.title = "Tour"


@mcp.tool(
    permission="tour.refund_order", approval="tour.approve_refund", destructive=True,
    transactional=True,
)  # fmt: skip
def refund(request: mcp.Request, order: str, reason: str) -> str:
    """Refund an order."""
    found = Order.objects.get(number=order)
    found.refunded = True
    found.save()
    return f"Refunded {found.total}."


@mcp.tool(read_only=True)
def search_orders(request: mcp.Request, text: str) -> list[str]:
    """Find orders by their number."""
    found = Order.objects.filter(number__contains=text)
    return list(found.values_list("number", flat=True))


@mcp.tool(read_only=True)
def opening_hours(request: mcp.Request) -> str:
    """Return when the shop is open."""
    return "Monday to Friday, 9 to 17"


@mcp.resource("policy://{name}")
def policy(request: mcp.Request, name: str) -> str:
    """A policy of the shop."""
    return f"The {name} policy."


@mcp.prompt
def apology(request: mcp.Request, customer: str) -> str:
    """An apology to a customer."""
    return f"Apologize to {customer}."
