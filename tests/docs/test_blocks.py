"""Every code block of the documentation is run or checked by a test."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from tools.newcomer import SCRIPTS
from tools.pages import of_section

from .commands import problems
from .pages import DOCS, PAGES, ROOT, blocks, fences, lines, named, text, typed

# How each kind of block is tested. A test of the page runs its `python` blocks.
CHECKED = {
    "json": "tests/docs/test_pages.py::test_json_blocks_are_valid",
    "console": "test_every_command_is_valid, and by the newcomer",
    "nginx": "test_every_nginx_directive_is_complete",
    "text": "a drawing: nothing in it runs",
    "{toctree}": "make docs",
    "{eval-rst}": "make docs",
    "django": "tests/docs/test_template_prompts.py",
    "html": "tests/docs/test_oauth.py: the login is shown",
    "sql": "tests/docs/test_deploying.py",
    "{literalinclude}": "a file of docs/deploy: tests/hosts",
}
HERE = Path(__file__).parent
WHOLE = {script.page for script in SCRIPTS.values() if script.section is None}


def runners(page: Path) -> list[Path]:
    """The tests that take the page's code from it."""
    return [
        path
        for path in HERE.glob("test_*.py")
        if f'"{named(page)}"' in (source := path.read_text("utf-8")) and "blocks(" in source
    ]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_is_run_or_checked(page):
    for language, code in fences(page):
        assert language.partition(" ")[0] in CHECKED or language == "python", (
            f"```{language}\n{code}"
        )
        if language == "python" and named(page) not in WHOLE:
            compile(dedent(code), named(page), "exec", dont_inherit=True)
            assert runners(page), f"No test runs this page's code:\n{code}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_is_valid(page):
    told = text(page)
    by_newcomer = "".join(
        told if script.section is None else of_section(told, script.section)
        for script in SCRIPTS.values()
        if script.page == named(page)
    )
    commands = [command for command in typed(page) if command not in by_newcomer]
    assert [wrong for command in commands for wrong in problems(command)] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_nginx_directive_is_complete(page):
    for code in blocks(page, "nginx"):
        bare = [re.sub(r"\s*#.*", "", line).strip() for line in code.splitlines()]
        assert all(line[-1] in ";{}" for line in bare if line)
        assert code.count("{") == code.count("}")
        directives = {line.split()[0] for line in bare if line and line != "}"}
        assert {one for one in directives if one.startswith("proxy_")} <= PROXY
        assert {one for one in directives if not one.startswith("proxy_")} <= OTHERS


PROXY = {
    *("proxy_pass", "proxy_http_version", "proxy_set_header"),
    *("proxy_buffering", "proxy_read_timeout"),
}
OTHERS = {
    *("server", "listen", "server_name", "location", "client_max_body_size"),
    *("ssl_certificate", "ssl_certificate_key"),
}


# Tests of these tests.


@pytest.mark.parametrize(
    "command",
    [
        "python manage.py no_such_command",
        "python manage.py mcp_token create --nobody alice",
        "python manage.py mcp_token create --name x",
        "python manage.py migrate && python manage.py mcp_stdio --usr alice",
        "make tea",
        "make demo --fast",
        "python -m tools sing",
        'pip install "django-modelcontext[tea]"',
        "pip install django-mcp",
        "claude mcp add --transport sse shop http://127.0.0.1:8000/mcp",
        "uvicorn --hots 127.0.0.1 shop.asgi:application",
        "no-such-program",
    ],
)
def test_invalid_command_is_reported(command):
    assert list(problems(command))


@pytest.mark.parametrize(
    "command",
    [
        'export TOKEN=x && python manage.py mcp_token create --user alice --name "my laptop"',
        "DEBUG=1 python manage.py migrate > log  # and more",
        'pip install "django-modelcontext[daphne,redis]" mcp',
        "claude mcp add shop -- python manage.py mcp_stdio --user alice",
        "uvicorn --host 127.0.0.1 --port 8000 shop.asgi:application",
    ],
)
def test_valid_command_is_not_reported(command):
    assert list(problems(command)) == []


def test_command_can_span_several_lines():
    block = "one 'a\nb'\ntwo \\\n  more\n\nthree  # it's the last\n"
    assert list(lines(block)) == ["one 'a\nb'", "two \\\n  more", "three  # it's the last"]


def test_indented_commands_are_found():
    assert "python manage.py runserver" in list(typed(ROOT / "docs/how-to/http.md"))
    assert any(command.startswith("curl") for command in typed(DOCS / "how-to/http.md"))
