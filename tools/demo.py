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

from django_mcp.web.clients import ClientProgram, Snippet, client
from tools import ROOT, serving
from tools.processes import run

NAME = "atlas"
# Claude Desktop starts servers by itself, and needs nothing else that is installed for that.
OVER_HTTP = ("claude-code", "cursor", "vscode", "inspector")  # and sign in
OVER_STDIO = ("claude-code", "claude-desktop", "cursor", "vscode", "inspector")
USER = "alice"  # whose token `manage.py prepare_demo` makes
MANAGE = shlex.join([sys.executable, str(ROOT / "manage.py")])
ANOTHER = f"{MANAGE} demo_users --passwords"
WELCOME = """
The atlas is served at {url}. Give a client that address - below is how -, and
your browser opens (in Claude Code, by /mcp): sign in, agree, and the client acts as you. These
may sign in, with these passwords:

{people}

They open the demonstration on this machine and nothing else, so they are shown; they are kept
beside the database, as is the token below.

"""
AND_MORE = """
A program without a browser shows this access token instead, which is {user}'s:

  {token}

In a browser {url} is a page, with what you may use. The admin is at
{origin}/admin/, for those whom this makes: {manage} createsuperuser
What connects clients that start a server themselves, over stdio: make demo ARGS=--stdio
Ctrl-C ends the server, and loses nothing.
"""
TAKEN = """\
Port {port} is taken by another program, or by a demonstration that still runs.
Name another: make demo ARGS="--port {other}\""""


class Access(NamedTuple):
    """How to get in: a token of `USER`'s, and passwords by the names of users."""

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
        prog="python -m tools demo", description="Serve the atlas, and tell how to connect to it."
    )
    parser.add_argument("--port", type=int, default=serving.PORT, help="instead of %(default)s")
    parser.add_argument("--largest", type=int, metavar="N", help="only the N largest cities")
    parser.add_argument("--stdio", action="store_true", help="a conversation over stdio instead")
    parser.add_argument("--interactive", action="store_true", help="... that you answer yourself")
    parser.add_argument("--check", action="store_true", help="do both, with nobody there, and end")
    return parser.parse_args(arguments)


def prepare(largest: int | None) -> Access:
    """Make what is missing."""
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
    """Names and passwords; of those whose passwords are known."""
    told = "\n".join(f"  {name:<8}{password}" for name, password in passwords.items())
    return told or f"  whoever you gave a password. Others by: {ANOTHER}"


def over_stdio(interactive: bool) -> int:
    """The guided conversation of a real client with the atlas."""
    code = converse(*["--interactive"] * interactive)
    print(f"\n{stdio_snippets(stdio_command(), USER)}", flush=True)
    return code


def converse(*arguments: str) -> int:
    return run(sys.executable, "-m", "tools.demo_stdio", *arguments, PYTHONUTF8="1")


def check(port: int, access: Access, largest: int | None) -> int:
    """The conversation, and a visit to a server that is started for it."""
    code = converse() | visit(serving.free_port(), largest)
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
    told = [(one, one.snippet(NAME, url=url, token="")) for one in map(client, OVER_HTTP)]
    return "\n\n".join(shown(one, snippet) for one, snippet in told)


def stdio_snippets(command: list[str], user: str) -> str:
    """Return the configuration of each client that starts the server itself, as `user`."""
    told = [shown(one, local(one, command)) for one in map(client, OVER_STDIO)]
    heading = f"Connect your own client, as {user} (or put another user's name there):"
    return "\n\n".join([heading, *told])


def local(one: ClientProgram, command: list[str]) -> Snippet:
    found = one.stdio_snippet(NAME, command)
    assert found is not None, f"{one.name} starts no programs"
    return found


def shown(one: ClientProgram, snippet: Snippet) -> str:
    lines = "\n".join(f"  {line}" for line in snippet.text.splitlines())
    return f"{one.name}. {snippet.where}:\n\n{lines}"


def stdio_command() -> list[str]:
    """Return the command that serves over stdio, with absolute paths."""
    manage = (ROOT / "manage.py").resolve()
    return [os.path.abspath(sys.executable), str(manage), "mcp_stdio", "--user", USER]
