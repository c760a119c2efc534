"""Tools and resources of the project that the worker processes serve."""

import asyncio
import time

from django.contrib.auth.models import Group
from django.db import transaction

import django_mcp as mcp

mcp.server.sse = True


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def look(request, seconds: float, steps: int = 0) -> str:
    """Take some time, without side effects."""
    for step in range(steps):
        await request.aprogress(step + 1, steps)
        await asyncio.sleep(seconds / steps)
    if not steps:
        await asyncio.sleep(seconds)
    return "looked"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def speak(request, times: int) -> str:
    """Log 100,000 characters, several times."""
    for _ in range(times):
        await request.alog("info", "x" * 100_000)
        await asyncio.sleep(0.02)
    return "said"


@mcp.tool(permission=mcp.PUBLIC)
def act(request, seconds: float) -> str:
    """Take some time in a thread, as a tool with side effects."""
    time.sleep(seconds)
    return "acted"


@mcp.tool(permission=mcp.PUBLIC)
def ask(request) -> str:
    """Ask."""
    return f"answer: {request.elicit('Really?', bool)}"


@mcp.tool(permission=mcp.PUBLIC)
async def release(request, seconds: float) -> str:
    """Release the connection."""
    await request.arelease_stream()
    await asyncio.sleep(seconds)
    return "released"


@mcp.tool(permission=mcp.PUBLIC)
def change(request) -> str:
    """Announce that a list has changed."""
    mcp.notify_list_changed("tools")
    return "changed"


def written(request, name: str) -> str:
    """Write, and on the first run wait before the commit."""
    begun = Group.objects.using("mcp").filter(name=f"{name} was begun").exists()
    Group.objects.create(name=name)
    if not begun:
        Group.objects.using("mcp").create(name=f"{name} was begun")  # on another connection
        time.sleep(60)
    return "written"


@mcp.tool(permission=mcp.PUBLIC)
def write(request, name: str) -> str:
    """Write."""
    request.progress(1)
    return written(request, name)


class Pure(mcp.Tool):
    """Write, and do nothing else."""

    permission = mcp.PUBLIC
    transactional = True
    durable = True

    def handle(self, request, name: str) -> str:
        request.progress(1)
        request.progress(2)
        return written(request, name)


class InSteps(Pure):
    """Write in a step, and then once more."""

    name = "in_steps"

    def handle(self, request, name: str) -> str:
        found = request.once("step", lambda: written(request, name))
        Group.objects.create(name=f"{name} after the step")
        return found


@mcp.tool(permission=mcp.PUBLIC)
def hook(request, name: str) -> str:
    """Write, and wait after the commit."""
    request.progress(1)
    Group.objects.create(name=name)
    transaction.on_commit(lambda: time.sleep(60))
    return "written"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def find(request, name: str) -> int:
    """Return how many rows with that name exist."""
    return Group.objects.filter(name=name).count()


mcp.register(Pure)
mcp.register(InSteps)


@mcp.tool
async def private(request, seconds: float, steps: int = 0) -> str:
    """Take some time, for users only."""
    for step in range(steps):
        await request.aprogress(step + 1, steps)
        await asyncio.sleep(seconds / steps)
    return f"done for {request.user}"


@mcp.resource("broken://one", permission=mcp.PUBLIC)
async def broken(request) -> str:
    """Report progress, then fail: the error ends the stream."""
    await request.aprogress(1)
    await asyncio.sleep(0.5)
    raise RuntimeError("It is broken.")


@mcp.register(Group)
class Groups(mcp.ModelResource):
    permission = mcp.PUBLIC
    fields = ["name"]
    listed = True

    def get_queryset(self, request):
        return super().get_queryset(request).exclude(name__startswith="hidden")


@mcp.tool(permission=mcp.PUBLIC)
def make_groups(request, names: list[str]) -> list[int]:
    """Create groups by one statement."""
    return [group.pk for group in Group.objects.bulk_create(Group(name=name) for name in names)]


@mcp.tool(permission=mcp.PUBLIC)
def save_group(request, key: int, name: str) -> str:
    """Save a group."""
    Group(pk=key, name=name).save()
    return "saved"


@mcp.tool(permission="auth.view_group", read_only=True)
async def guarded(request, seconds: float = 0) -> str:
    """Take some time, for users who may see groups."""
    await asyncio.sleep(seconds)
    return f"done for {request.user}"


@mcp.tool(permission="auth.view_group", atomic=False)
def guarded_writing(request, name: str, seconds: float = 0) -> str:
    """Query repeatedly, then write, for users who may see groups."""
    for _ in range(int(seconds * 20)):
        Group.objects.filter(name=name).exists()
        time.sleep(0.05)
    Group.objects.create(name=name)
    return f"written by {request.user}"


@mcp.tool(permission="auth.view_group", atomic=False)
def resign(request) -> str:
    """Remove the permission that this call needs in a step; then the call runs again."""
    return request.once("step", lambda: str(request.user.groups.clear() or "done"))


@mcp.resource("guarded://one", permission="auth.view_group")
def guarded_resource(request) -> str:
    """A resource for users who may see groups."""
    return "one"
