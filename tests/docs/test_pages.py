"""A module of the shop, like its ``mcp.py``, that declares on its own server."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any, Literal

import pytest
from django.conf import settings
from django.test import override_settings
from django.utils.translation import get_language

import django_mcp as mcp
from django_mcp.auth.principal import anonymous
from django_mcp.calls.throttling import DEFAULTS as RATES
from django_mcp.declarations import server as servers
from django_mcp.declarations.request import KnownAnswers, Request

from .pages import PAGES, ROOT, blocks, named, text

SETTINGS = ROOT / "docs/reference/settings.md"
DECLARING = [ROOT / "README.md", ROOT / "docs/reference/declaring.md"]


@pytest.fixture
def module(monkeypatch, server):
    """A module of the shop's, as its ``mcp.py`` would be, that declares on a server of its own."""
    monkeypatch.setattr(servers, "default_server", server)
    before = dict(servers._servers)
    made = ModuleType("tests.shop.shown")
    made.__package__ = "tests.shop"
    monkeypatch.setitem(sys.modules, made.__name__, made)
    yield made
    for name in set(servers._servers) - set(before):
        del servers._servers[name]


@pytest.mark.parametrize("page", DECLARING, ids=named)
def test_declarations_of_a_page_can_be_served(page, module, server):
    from tests.shop.models import Invoice

    namespace: dict[str, Any] = module.__dict__ | {"Invoice": Invoice}
    for code in blocks(page, "python"):
        exec(compile(code, f"<{named(page)}>", "exec", dont_inherit=True), namespace)
    catalog = server.ready()
    assert catalog.tools and catalog.models
    assert all(tool._definition()["inputSchema"] for tool in catalog.tools.values())


def test_first_example_of_the_readme_has_ten_lines():
    first = blocks(ROOT / "README.md", "python")[0]
    lines = [line for line in first.splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) == 10


def test_code_of_the_three_ideas_runs(server):
    size = mcp.Elicit("Which size?", Literal["S", "M", "L"])
    answer = {"result": {"action": "accept", "content": {"answer": "M"}}}
    answers = KnownAnswers(known={size.digest(1): answer}, remembered={"charge": "a receipt"})
    request = Request(
        anonymous(), server, offered=lambda: {"elicitation": {"form": {}}}, answers=answers
    )
    namespace: dict[str, Any] = {"request": request, "Literal": Literal}
    for code in blocks(ROOT / "docs/explanation/three-ideas.md", "python"):
        exec(code, namespace)
    assert (namespace["size"], namespace["receipt"]) == ("M", "a receipt")


def test_session_settings_pass_the_system_checks():
    given: dict[str, Any] = {"BASE_DIR": Path("/srv/shop")}
    for code in blocks(ROOT / "docs/how-to/sessions.md", "python"):
        exec(code, given)
    program = f"""
        from pathlib import PosixPath
        from django.conf import settings
        settings.configure(
            INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_mcp"],
            SECRET_KEY="x", USE_TZ=True, DATABASES={given["DATABASES"]!r},
            DATABASE_ROUTERS={given["DATABASE_ROUTERS"]!r}, DJANGO_MCP={given["DJANGO_MCP"]!r},
            CHANNEL_LAYERS={given["CHANNEL_LAYERS"]!r},
        )
        import django
        django.setup()
        from django.core.management import call_command
        call_command("check", tags=["django_mcp"], deploy=True, fail_level="WARNING")
        from channels.layers import get_channel_layer
        assert type(get_channel_layer()).__name__ == "RedisChannelLayer"
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_reference_and_guide_show_the_same_settings():
    shown: list[dict[str, Any]] = []
    for page in ("docs/how-to/sessions.md", "docs/reference/storage.md"):
        shown.append({"BASE_DIR": Path("/srv/shop")})
        exec(blocks(ROOT / page, "python")[0], shown[-1])
    for name in ("DATABASES", "DATABASE_ROUTERS", "DJANGO_MCP"):
        assert shown[0][name] == shown[1][name]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_json_blocks_are_valid(page):
    for code in blocks(page, "json"):
        json.loads(code)


def test_names_on_the_page_exist_in_the_example_project():
    rows = text(ROOT / "docs/explanation/atlas.md").splitlines()
    told = {name for row in rows if row.startswith("|") for name in re.findall(r"`(\w+)`", row)}
    tree = ast.parse(text(ROOT / "example_project/atlas/mcp.py"))
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    defined = {node.name for node in tree.body if isinstance(node, kinds)}
    # What the module registers by a call, such as `mcp.register_admin(admin.site, models=[Trip])`.
    calls = [node for node in tree.body if isinstance(node, ast.Expr)]
    named = {
        part.attr for call in calls for part in ast.walk(call) if isinstance(part, ast.Attribute)
    }
    named |= {part.id for call in calls for part in ast.walk(call) if isinstance(part, ast.Name)}
    assert told - {"operations"} <= defined | named
    assert "operations" in told and len(told) > 15


@pytest.mark.django_db
def test_context_manager_of_around_surrounds_calls(monkeypatch, server, connect):
    given: dict[str, Any] = {}
    setting, manager = blocks(SETTINGS, "python")
    exec(manager, given)
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    tenants = ModuleType("shop.tenants")
    vars(tenants).update(given)
    monkeypatch.setitem(sys.modules, "shop.tenants", tenants)
    exec(setting, given)

    @server.tool(permission=mcp.PUBLIC)
    def language(request) -> str:
        return str(get_language())

    with override_settings(DJANGO_MCP={**settings.DJANGO_MCP, **given["DJANGO_MCP"]}):
        assert connect(None, server=server).text("language") == "de"


def test_every_rate_limit_is_documented_with_its_default():
    flowing = " ".join(text(SETTINGS).split())
    assert all(f"| `{kind}` | `{rate}` |" in flowing for kind, rate in RATES.items())


def test_readme_sets_the_url_before_it_is_printed():
    page = ROOT / "README.md"
    (code,) = [code for code in blocks(page, "python") if code.startswith("# settings.py")]
    given: dict[str, Any] = {}
    exec(code, given)
    assert given["DJANGO_MCP"]["URL"] == "http://127.0.0.1:8000"  # where runserver listens
    whole = page.read_text("utf-8")
    assert whole.index(code) < whole.index("manage.py mcp_connect")
