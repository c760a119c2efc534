"""`python -m tools conformance`: run the official conformance suite against the test server.

    python -m tools conformance [--sets 2025-11-25,authorization] [--server daphne] [--url URL]

The server (tests/conformance) runs in its own process, on a free port and with temporary databases.
Results are written to build/conformance. The exit code is 0 only if all required scenarios of all
sets pass (tools/conformance_results.py). This module uses only the standard library.
"""

import argparse
import http.client
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from tools import ROOT, conformance_authorization, conformance_suite
from tools.conformance_results import AUTHORIZATION, REQUIRED, SetResult
from tools.ports import free_port

SETTINGS = "tests.conformance.settings"
APPLICATION = "tests.conformance.asgi:application"
DATABASES = ("default", "storage")
PERSON = """
import os
from django.contrib.auth.models import User
name, password = os.environ["CONFORMANCE_USER"], os.environ["CONFORMANCE_PASSWORD"]
User.objects.create_user(name, password=password)
"""
HOST = "127.0.0.1"  # the suite looks at the Host header only where the server is this machine
PATH = "/mcp"
PATIENCE = 30  # seconds for the server to come up or go down
SERVERS = {
    "uvicorn": ("-m", "uvicorn", "--host", HOST, "--log-level", "warning", APPLICATION, "--port"),
    "daphne": ("-m", "daphne", "-b", HOST, APPLICATION, "-p"),
}


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if why := conformance_suite.why_absent():
        raise SystemExit(f"The conformance suite cannot be run: {why}.")
    conformance_suite.install()
    results = conformance_suite.FOLDER / "results"
    results.mkdir(exist_ok=True)
    failed = False
    with nullcontext(options.url) if options.url else served(results, options.server) as url:
        for verdict in run(options.sets, url, results):
            print("\n".join(verdict.lines()), flush=True)
            failed |= bool(verdict.problems)
    print(f"The suite's own words are in {results}")
    return int(failed)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools conformance", allow_abbrev=False)
    parser.add_argument("--sets", type=sets, default=list(REQUIRED), help="what to test")
    parser.add_argument("--server", choices=SERVERS, default="uvicorn", help="who serves")
    parser.add_argument("--url", help="test the server that runs there, and start none")
    return parser.parse_args(arguments)


def sets(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := set(names) - set(REQUIRED):
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not of {', '.join(REQUIRED)}")
    return names


def run(sets: list[str], url: str, results: Path) -> Iterator[SetResult]:
    """The sets, one after the other."""
    special = {AUTHORIZATION: conformance_authorization.run_set}
    return (
        special.get(name, conformance_suite.run_set)(name, url, results / name) for name in sets
    )


@contextmanager
def served(results: Path, server: str = "uvicorn") -> Iterator[str]:
    """The conformance server, with empty databases; its URL. Its words go to `results`."""
    origin = f"http://{HOST}:{(port := free_port())}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        environ = environment(CONFORMANCE_FOLDER=folder, CONFORMANCE_ORIGIN=origin)
        with open(results / "server.log", "wb") as log:
            prepare(environ)
            command = [sys.executable, *SERVERS[server], str(port)]
            process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log)
        try:
            wait_for(origin + PATH, process, results / "server.log")
            yield origin + PATH
        finally:
            stop(process)


def environment(**added: str) -> dict[str, str]:
    """The environment of a process that is none of the tests' own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return kept | conformance_authorization.ACCOUNT | {"DJANGO_SETTINGS_MODULE": SETTINGS} | added


def prepare(environ: dict[str, str]) -> None:
    """Tables, and a person who may sign in."""
    migrations = [("migrate", "-v0", "--database", database) for database in DATABASES]
    for words in [*migrations, ("shell", "-v0", "-c", PERSON)]:
        command = [sys.executable, "-m", "django", *words]
        subprocess.run(command, cwd=ROOT, env=environ, check=True)


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers something, whatever it is."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        if answers(url):
            return
        time.sleep(0.1)
    raise SystemExit(f"Nobody answers at {url}:\n{log.read_text('utf-8', 'replace')[-3000:]}")


def answers(url: str) -> bool:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=5)
    try:
        connection.request("POST", place.path, b"{}", {"Content-Type": "application/json"})
        return bool(connection.getresponse().status)
    except OSError:
        return False
    finally:
        connection.close()


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
