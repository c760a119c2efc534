"""The page on deployment: its code runs, and it names all files, URLs and reasons."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connections

from django_mcp.conf import settings
from django_mcp.web import health

from .pages import DOCS, blocks, fences, text

PAGE = DOCS / "how-to/deploy.md"  # "docs/how-to/deploy.md", whose blocks( are run here
INCLUDED = re.compile(r"\{literalinclude\} (\S+)$")


def test_every_deployment_file_is_included() -> None:
    shown = [found[1] for kind, _ in fences(PAGE) if (found := INCLUDED.match(kind))]
    paths = {(PAGE.parent / one).resolve() for one in shown}
    assert paths == set((DOCS / "deploy").iterdir()) and len(shown) == len(paths)


def test_application_serves_the_urls_that_the_page_names(tmp_path: Path) -> None:
    (code,) = [one for one in blocks(PAGE, "python") if one.startswith("# shop/asgi.py")]
    python = [sys.executable, "-c"]
    program = f"""
import asyncio
{code.replace("shop.settings", "tests.settings")}
async def asked(path):
    said = []
    async def send(message):
        said.append(message)
    await application({{"type": "http", "path": path, "method": "GET"}}, None, send)
    return said[0]["status"], said[1]["body"]
print(asyncio.run(asked("/health/live")))
"""
    done = subprocess.run([*python, program], capture_output=True, text=True)
    assert done.stdout == "(200, b'alive\\n')\n", done.stderr


@pytest.mark.django_db
def test_sql_statements_return_numbers() -> None:
    (code,) = blocks(PAGE, "sql")
    statements = re.findall(r"^(SELECT .*);", code, re.M)
    with connections[settings.DATABASE].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            assert cursor.fetchall() in ([(0,)], [])
    assert len(statements) == len(code.splitlines())


def test_every_readiness_reason_is_listed() -> None:
    source = Path(health.__file__).read_text("utf-8")
    given = set(re.findall(r'(?:yield|return|_found =|else) "(\w+)"', source))
    rows = text(PAGE).partition("| reason |")[2].partition("\n\n")[0]
    assert given == set(re.findall(r"^\| `(\w+)` \|", rows, re.M)) and len(given) == 5
