"""
What a project would declare over the canaries: something for each way in.

Nothing here is careless. The one tool that fails, ``weigh``, fails as a bug does: with a hidden
value in the exception's words.
"""

from __future__ import annotations

from typing import Any

import django_mcp as mcp
from django_mcp.declare.servers import Server

from .models import Author, Label, Paper
from .world import BELL

FORBIDDEN = "canaries.audit"  # which alice does not have


class Ours(mcp.ModelResource):
    """Rows of the caller's tenants, but for the sealed ones."""

    permission = mcp.AUTHENTICATED

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).filter(tenant__members=request.user)

    def has_object_permission(self, request: Any, obj: Any, operation: str) -> bool:
        return not getattr(obj, "sealed", False)


class Authors(Ours):
    fields = ["name"]
    search_fields = ["name"]
    ordering = ["name"]


class Labels(Ours):
    fields = ["word"]


class Papers(Ours):
    fields = [
        "number", "title", "author", "author__name", "state", "amount", "day", "read_at", "labels",
        "scan",
    ]  # fmt: skip
    search_fields = ["number", "title", "author__name"]
    filter_fields = ["author", "state", "amount", "day", "read_at", "labels"]
    ordering = ["day", "amount"]


class Written(Papers):
    """The rows that are written, bound and listed."""

    name = "paper"
    default = listed = True
    operations = ["update", "delete"]
    operation_permissions = {"update": mcp.AUTHENTICATED, "delete": mcp.AUTHENTICATED}
    readonly_fields = ["number"]  # unique: whoever writes it learns which there are


class Numbered(Papers):
    """The same rows by another address."""

    name, uri = "numbered", "paper://{number}"


def expose(server: Server) -> Server:
    """Declare all of it on ``server``."""
    server.register(Author, Authors)
    server.register(Label, Labels)
    server.register(Paper, Written)
    server.register(Paper, Numbered)
    _read(server)
    _write(server)
    _withhold(server)
    return server


def _read(server: Server) -> None:
    @server.tool(read_only=True)
    def describe(request: mcp.Request, paper: Paper) -> Paper:
        """The paper."""
        return paper

    @server.tool(read_only=True)
    def compare(request: mcp.Request, papers: list[Paper], author: Author | None = None) -> Any:
        """All of the papers."""
        request.progress(1, 2, f"{len(papers)} papers")
        request.log("info", {"papers": [paper.number for paper in papers]})
        return f"{len(papers)} papers of {author.name if author else 'several'}"

    @server.tool(read_only=True)
    def works(request: mcp.Request, author: Author) -> list[Paper]:
        """What an author has published."""
        return list(author.papers.filter(sealed=False))

    @server.prompt
    def review(request: mcp.Request, paper: Paper) -> str:
        """A review."""
        return f"Review {paper.number}: {paper.title}"

    @server.resource("abstract://{paper}")
    def abstract(request: mcp.Request, paper: Paper) -> str:
        return paper.title

    @server.resource(BELL)
    def bell(request: mcp.Request) -> str:
        return "Ding."


def _write(server: Server) -> None:
    @server.tool
    def rename(request: mcp.Request, paper: Paper, title: str) -> Paper:
        """Give a paper another title."""
        paper.title = title[:60]
        paper.save(update_fields=["title"])
        return paper

    @server.tool
    def weigh(request: mcp.Request, paper: Paper) -> int:
        """It has a bug, and no need to be told of."""
        return int(paper.secret)


def _withhold(server: Server) -> None:
    """Things whose very names are canaries."""

    @server.tool(permission=FORBIDDEN)
    def kanary_audit(request: mcp.Request) -> str:
        return "kanary-audit"

    @server.prompt(permission=FORBIDDEN)
    def kanary_accuse(request: mcp.Request) -> str:
        return "kanary-accuse"

    @server.resource("kanary://report", permission=FORBIDDEN)
    def kanary_report(request: mcp.Request) -> str:
        return "kanary-report"

    @server.resource("kanary://{name}", permission=FORBIDDEN)
    def kanary_each(request: mcp.Request, name: str) -> str:
        return f"kanary-{name}"
