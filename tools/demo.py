"""`python -m tools demo`: the example project, from nothing to a server to connect to.

    python -m tools demo [--port N] [--largest N]
    python -m tools demo --stdio [--interactive]
    python -m tools demo --check

The rule: it asks nothing, so that it runs where nobody sits at a keyboard; and it may be run
again, when what is there is kept.
"""

import argparse
import shlex
import subprocess
import sys

from tools import connect, serving
from tools.environment import ROOT
from tools.run import run

USER = "alice"  # whose token `manage.py prepare_demo` prints
WELCOME = """
The atlas is served at {url}. With this access token you are {user}:

  {token}

It opens the demonstration on this machine and nothing else, so it is shown here; it is kept beside
the database. Without it you are nobody, and see what is for everybody.

"""
AND_MORE = """
In a browser {url} is a page. To sign in there as alice or as bob, give them passwords, in
another terminal:

  {manage} demo_users --passwords

The admin is at {origin}/admin/, for whom the same with createsuperuser makes.
The conversation that a client may have with the atlas: make demo ARGS=--stdio
Ctrl-C ends the server, and loses nothing.
"""
TAKEN = """\
Port {port} is taken by another program, or by a demonstration that still runs.
Name another: make demo ARGS="--port {other}\""""


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    serves = not (options.stdio or options.interactive or options.check)
    if serves and serving.is_taken(options.port):
        print(TAKEN.format(port=options.port, other=options.port + 1), file=sys.stderr)
        return 1
    token = prepare(options.largest)
    if serves:
        instruct(serving.origin(options.port), token)
        return serving.serve(options.port)
    return check(options.port, token) if options.check else over_stdio(options.interactive)


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


def prepare(largest: int | None) -> str:
    """Make what is missing; an access token."""
    sys.stdout.flush()
    wanted = [f"--largest={largest}"] if largest else []
    command = [sys.executable, "manage.py", "prepare_demo", *wanted]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout.strip()


def instruct(origin: str, token: str) -> None:
    url = f"{origin}/mcp"
    print(
        WELCOME.format(url=url, user=USER, token=token) + connect.over_http(url, token, command())
    )
    manage = shlex.join([sys.executable, str(ROOT / "manage.py")])
    print(AND_MORE.format(url=url, origin=origin, manage=manage), flush=True)


def over_stdio(interactive: bool) -> int:
    """The guided conversation of a real client with the atlas."""
    code = converse(*["--interactive"] * interactive)
    print(f"\n{connect.over_stdio(command(), USER)}", flush=True)
    return code


def converse(*arguments: str) -> int:
    return run(sys.executable, "-m", "tools.conversation", *arguments, PYTHONUTF8="1")


def check(port: int, token: str) -> int:
    """The conversation, and a visit to a server that is started for it."""
    code = converse() | visit(token, serving.free_port())
    print("\nBefore it serves, `make demo` prints:", flush=True)
    instruct(serving.origin(port), token)
    return code


def visit(token: str, port: int) -> int:
    url = f"{serving.origin(port)}/mcp"
    try:
        with serving.running(port):
            return run(sys.executable, "-m", "tools.visit", url, token, PYTHONUTF8="1")
    except serving.Failed as failed:
        print(failed, file=sys.stderr)
        return 1


def command() -> list[str]:
    return connect.stdio(sys.executable, ROOT / "manage.py", USER)
