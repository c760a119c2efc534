"""
Declarations of a project over the canaries: one for each kind of declaration.

They are correct. Those in ``BUGS`` raise an exception with a hidden value in its message.
"""

from __future__ import annotations

from typing import Any

import django_mcp as mcp
from django_mcp.bridges.forms import FormTool
from django_mcp.bridges.views import ViewTools
from django_mcp.declarations.server import Server

from .dataset import MARKER
from .models import Author, Label, Paper, Tenant
from .site import FORBIDDEN, ChoiceForm, CitationForm, PaperFilter, PaperForm

BUGS = ("weigh", "broken")  # logged in full for the developer


class Ours(mcp.ModelResource):
    """Rows of the caller's tenants, except sealed ones."""

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
    operations = ["create"]
    operation_permissions = {"create": mcp.AUTHENTICATED}

    def get_initial(self, request: Any) -> Any:
        return {"tenant": Tenant.objects.get(members=request.user)}

    def save_model(self, request: Any, obj: Any, created: bool) -> None:
        obj.pk = 301 + Label.objects.filter(pk__gt=300).count()  # the same in both datasets
        super().save_model(request, obj, created)


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
    """The same rows at another URI."""

    name, uri = "numbered", "paper://{number}"


def expose(server: Server) -> Server:
    """Declare everything on ``server``."""
    server.register(Author, Authors)
    server.register(Label, Labels)
    server.register(Paper, Written)
    server.register(Paper, Numbered)
    _read(server)
    _write(server)
    _withhold(server)
    _bridge(server)
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
        return list(author.papers.filter(sealed=False).order_by("pk"))

    @server.prompt
    def review(request: mcp.Request, paper: Paper) -> str:
        """A review."""
        return f"Review {paper.number}: {paper.title}"

    @server.resource("abstract://{paper}")
    def abstract(request: mcp.Request, paper: Paper) -> str:
        return paper.title

    @server.resource(MARKER)
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
        """It has a bug."""
        return int(paper.secret)


def _withhold(server: Server) -> None:
    """Declarations whose names are canaries."""

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


def _bridge(server: Server) -> None:
    """Forms and views of the project, exposed as tools."""
    server.register(PaperForm, Retitle)
    server.register(CitationForm, Cite)
    server.register(Pages)

    @server.tool
    def choose(request: mcp.Request, message: str) -> str:
        """Let the user choose a paper."""
        found = request.elicit(message, ChoiceForm)
        return f"Chosen: {found['paper'].number}"


class Retitle(FormTool):
    """Change a paper by the form of its page."""

    update, permission = True, mcp.AUTHENTICATED


class Cite(FormTool):
    """How to cite a paper."""

    def form_valid(self, request: mcp.Request, form: Any) -> str:
        paper, others = form.cleaned_data["paper"], form.cleaned_data["others"]
        return f"{paper.number}, as in {[one.number for one in others]}"


class Pages(ViewTools):
    get = ["papers", "paper", "broken", "kanary-staff"]
    post = ["archive"]
    resources = ["paper"]
    query = {"papers": PaperFilter}
