"""`python -m tools demo`: prepare and serve the example project.

    python -m tools demo [--port N] [--largest N]
    python -m tools demo --stdio [--interactive]
    python -m tools demo --check

It never prompts, so it runs without a terminal. Running it again keeps existing data.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from typing import NamedTuple

from django.conf import settings

from django_mcp.web.clients import ClientProgram, Snippet, client
from tools import ROOT, serving
from tools.ports import free_port
from tools.processes import run

# The snippets have translated parts. This process has no project, and shows them in English.
if not settings.configured:
    settings.configure(USE_I18N=False)

NAME = "atlas"
# Claude Desktop is missing: over HTTP it needs another program.
OVER_HTTP = ("claude-code", "cursor", "vscode", "inspector")  # clients that sign in
OVER_STDIO = ("claude-code", "claude-desktop", "cursor", "vscode", "inspector")
USER = "alice"  # the owner of the token that `manage.py prepare_demo` makes
MANAGE = shlex.join([sys.executable, str(ROOT / "manage.py")])
ANOTHER = f"{MANAGE} demo_users --passwords"
WELCOME = """
The atlas is served at {url}. Connect a client to this address, as shown below.
Your browser opens (in Claude Code, type /mcp first). Sign in and agree: the client then acts as
you. You can sign in as:

{people}

These passwords work only for the demonstration on this machine. They are stored beside its
database, as is the access token below.

"""
AND_MORE = """
A program without a browser can send this access token, which belongs to {user}:

  {token}

Open {url} in a browser to see what you may use. The admin is at {origin}/admin/.
To sign in there, create a user: {manage} createsuperuser
For clients that start the server themselves, over stdio: make demo ARGS=--stdio
Ctrl-C stops the server. The data stays.
"""
TAKEN = """\
Port {port} is taken by another program, or by a demonstration that still runs.
Choose another: make demo ARGS="--port {other}\""""


class Access(NamedTuple):
    """The access token of `USER`, and the passwords of users by name."""

    token: str
    passwords: dict[str, str]


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    serves = not (options.stdio or options.interactive or options.check)
    if serves and serving.is_taken(options.port):
        print(TAKEN.format(port=options.port, other=options.port + 1), file=sys.stderr)
        return 1
    print("Preparing the demonstration ...", file=sys.stderr, flush=True)
    access = prepare(options.largest)
    if serves:
        instruct(serving.origin(options.port), access)
        return serving.serve(options.port)
    if options.check:
        return check(options.port, access, options.largest)
    return over_stdio(options.interactive)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools demo", description="Serve the atlas, and show how to connect to it."
    )
    parser.add_argument("--port", type=int, default=serving.PORT, help="instead of %(default)s")
    parser.add_argument("--largest", type=int, metavar="N", help="only the N largest cities")
    parser.add_argument("--stdio", action="store_true", help="run a session over stdio instead")
    parser.add_argument(
        "--interactive", action="store_true", help="the same, and you answer its questions"
    )
    parser.add_argument("--check", action="store_true", help="run both without a person, and exit")
    return parser.parse_args(arguments)


def prepare(largest: int | None) -> Access:
    """Create what is missing, and return how to sign in."""
    sys.stdout.flush()
    command = [sys.executable, "manage.py", "prepare_demo", *only(largest)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(done.returncode)
    return Access(**json.loads(done.stdout))


def only(largest: int | None) -> list[str]:
    return [f"--largest={largest}"] if largest else []


def instruct(origin: str, access: Access) -> None:
    url = f"{origin}/mcp"
    print(WELCOME.format(url=url, people=people(access.passwords)) + http_snippets(url))
    more = {"origin": origin, "user": USER, "token": access.token, "manage": MANAGE}
    print(AND_MORE.format(url=url, **more), flush=True)


def people(passwords: dict[str, str]) -> str:
    """Return the names and passwords of the users whose passwords are known."""
    lines = "\n".join(f"  {name:<8}{password}" for name, password in passwords.items())
    return lines or f"  the users whose passwords you set. For new passwords: {ANOTHER}"


def over_stdio(interactive: bool) -> int:
    """Run the demonstration of a real client over stdio, and show how to connect others."""
    code = converse(*["--interactive"] * interactive)
    print(f"\n{stdio_snippets(stdio_command(), USER)}", flush=True)
    return code


def converse(*arguments: str) -> int:
    return run(sys.executable, "-m", "tools.demo_stdio", *arguments, PYTHONUTF8="1")


def check(port: int, access: Access, largest: int | None) -> int:
    """Run the demonstrations over stdio and HTTP without a person."""
    code = converse() | visit(free_port(), largest)
    print("\nBefore it serves, `make demo` prints:", flush=True)
    instruct(serving.origin(port), access)
    return code


def visit(port: int, largest: int | None) -> int:
    url = f"{serving.origin(port)}/mcp"
    command = [sys.executable, "-m", "tools.demo_http", url, *only(largest)]
    try:
        with serving.running(port):
            return run(*command, PYTHONUTF8="1")
    except serving.Failed as failed:
        print(failed, file=sys.stderr)
        return 1


def http_snippets(url: str) -> str:
    """Return the configuration of each client that signs in. It contains no token."""
    snippets = [(one, one.snippet(NAME, url=url, token="")) for one in map(client, OVER_HTTP)]
    return "\n\n".join(shown(one, snippet) for one, snippet in snippets)


def stdio_snippets(command: list[str], user: str) -> str:
    """Return the configuration of each client that starts the server itself, as `user`."""
    snippets = [shown(one, local(one, command)) for one in map(client, OVER_STDIO)]
    heading = f"Connect your own client, as {user} (or use the name of another user):"
    return "\n\n".join([heading, *snippets])


def local(one: ClientProgram, command: list[str]) -> Snippet:
    found = one.stdio_snippet(NAME, command)
    assert found is not None, f"{one.name} cannot start a program"
    return found


def shown(one: ClientProgram, snippet: Snippet) -> str:
    lines = "\n".join(f"  {line}" for line in snippet.text.splitlines())
    return f"{one.name}. {snippet.where}:\n\n{lines}"


def stdio_command() -> list[str]:
    """Return the command that serves over stdio, with absolute paths."""
    manage = (ROOT / "manage.py").resolve()
    return [os.path.abspath(sys.executable), str(manage), "mcp_stdio", "--user", USER]
