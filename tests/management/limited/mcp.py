"""Tools with an approval, a time limit and a throttle. They write groups, to see what they did."""

import sys
import time

from django.contrib.auth.models import Group

import django_mcp as mcp


@mcp.tool(permission=mcp.AUTHENTICATED, approval="auth.delete_group")
def close(request: mcp.Request, name: str) -> str:
    Group.objects.create(name=name)
    return f"closed by {request.user}"


@mcp.tool(permission=mcp.AUTHENTICATED, timeout=0.2)
def slow(request: mcp.Request) -> str:
    """Write, and run until the time limit."""
    Group.objects.create(name="late")
    print("SLOW", file=sys.stderr, flush=True)
    while not request.cancelled:
        time.sleep(0.01)
    return "done"


@mcp.tool(permission=mcp.PUBLIC, read_only=True, throttle="2/month")
def rare(request: mcp.Request) -> str:
    return "counted"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def groups(request: mcp.Request) -> str:
    return " ".join(Group.objects.order_by("name").values_list("name", flat=True))
