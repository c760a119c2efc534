"""`python -m tools test-all [--only sqlite,browser] [--require postgres] [PYTEST ARGUMENTS]`.

Run every test. The tests of what a database does run on each database; all others run on SQLite.
Three suites run at a time. The output of the SQLite suite, or of a single suite, is printed while
it runs, and that of other suites when they end. A suite that cannot run is skipped, and the reason
printed. It is a failure if `--require` names it or if CI=true; then a test that has to be skipped
in it is a failure too. The exit code is 0 only if every suite passed.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tools import ROOT
from tools.databases import why_absent
from tools.processes import module
from tools.test import ENVIRON

REPORT = ROOT / "build" / "tests.json"

APART = (
    "browser", "clients", "conformance", "example_project", "fields", "object_permissions",
    "tenants",
)  # fmt: skip

# What these test depends on the database: locks, transactions, types, the SQL of a queryset.
ON_EVERY_DATABASE = (
    "tests/admin",
    "tests/bridges",
    "tests/declarations/fields",
    "tests/declarations/test_model_queries.py",
    "tests/declarations/test_model_resources.py",
    "tests/storage",
    "tests/calls/test_database_failover.py",
    "tests/calls/test_input_requests.py",
    "tests/calls/test_once.py",
    "tests/calls/test_recovery.py",
    "tests/calls/test_session_calls.py",
    "tests/calls/test_stdio_questions.py",
    "tests/calls/test_stored_results.py",
    "tests/calls/test_token_revocations.py",
    "tests/calls/test_visibility.py",
    "tests/changes/test_broadcaster.py",
    "tests/changes/test_capture.py",
    "tests/changes/test_change_set.py",
    "tests/changes/test_listeners.py",
    "tests/changes/test_permission_changes.py",
    "tests/models",
    "tests/oauth/test_activity.py",
    "tests/oauth/test_connected_apps.py",
    "tests/oauth/test_scope_grants.py",
    "tests/oauth/test_token_endpoint.py",
    "tests/oauth/test_may_authorize.py",
    "tests/oauth/test_register.py",
    "tests/oauth/test_threats_clients.py::test_consent_during_deletion_of_the_client_is_no_server_error",
    "tests/oauth/test_threats_clients.py::test_document_does_not_take_over_a_client_with_the_same_id_in_other_case",
    "tests/oauth/test_threats_resource.py",
    "tests/oauth/test_threats_tokens.py",
    "tests/oauth/test_verifier.py",
    "tests/restarts/test_oauth_revocation.py",
    "tests/restarts/test_postgres_wakeups.py",
    "tests/restarts/test_revocation.py",
    "tests/restarts/test_transactions.py",
    "tests/verifiers/test_personal_tokens.py",
    "tests/transports/http/test_resumption.py",
    "tests/transports/http/test_sessions.py",
    "--ignore=tests/storage/test_channel_layer_wakeups.py",
)


@dataclass(frozen=True)
class Suite:
    """One run of pytest, on one database."""

    label: str
    paths: tuple[str, ...]
    options: tuple[str, ...] = ()
    database: str = "sqlite"


CORES = os.cpu_count() or 1
BY_SCOPE = ("--dist", "loadscope", "--no-loadscope-reorder")
# Two processes per core, because many of these tests wait for a process that they started.
TWO_PER_CORE = ("-n", str(2 * CORES), *BY_SCOPE)
ONE_PER_CORE = ("-n", str(CORES), *BY_SCOPE)
ALONE = ("-n", "0")  # these start several programs at once themselves
SUITES = {
    "sqlite": Suite(
        "SQLite", ("tests", *(f"--ignore=tests/{name}" for name in APART)), TWO_PER_CORE
    ),
    "example": Suite("Example project", ("tests/example_project",), ONE_PER_CORE),
    "fields": Suite("Fields", ("tests/fields",), ALONE),
    "fields-postgres": Suite("Fields Postgres", ("tests/fields",), ALONE, "postgres"),
    "fields-mariadb": Suite("Fields MariaDB", ("tests/fields",), ALONE, "mariadb"),
    "object-permissions": Suite("Object permissions", ("tests/object_permissions",), ALONE),
    "tenants": Suite("Tenants", ("tests/tenants",), ALONE, "postgres"),
    "browser": Suite("Browser", ("tests/browser",), ALONE),
    "clients": Suite("Clients", ("tests/clients",), ALONE),
    "conformance": Suite("Conformance", ("tests/conformance",), ALONE),
    "postgres": Suite("PostgreSQL", ON_EVERY_DATABASE, ONE_PER_CORE, "postgres"),
    "mariadb": Suite("MariaDB", ON_EVERY_DATABASE, ONE_PER_CORE, "mariadb"),
}


# The suites of a lane run one after another, beside those of the other lanes. None of them uses all
# cores all the time.
LANES = (
    ("sqlite",),
    ("postgres", "mariadb"),
    (
        "example", "fields", "fields-postgres", "fields-mariadb", "object-permissions", "tenants",
        "browser", "clients", "conformance",
    ),
)  # fmt: skip


@dataclass
class Result:
    """The outcome of a suite."""

    label: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    code: int = 0
    absent: str = ""

    def __str__(self) -> str:
        if self.absent:
            return f"{self.label:<16} {'FAILED' if self.code else 'skipped'}: {self.absent}"
        counts = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        verdict = f"FAILED ({self.code})" if self.code else "ok"
        return f"{self.label:<16} {counts:<40} {self.seconds:6.1f} s  {verdict}"


def main(arguments: list[str]) -> int:
    options, for_pytest = parse(arguments)
    lanes = [[name for name in lane if name in (options.only or SUITES)] for lane in LANES]

    is_alone = sum(map(bool, lanes)) == 1

    def run_lane(names: Sequence[str]) -> list[Result]:
        return [
            run(name, name in options.require, for_pytest, live=is_alone or name == "sqlite")
            for name in names
        ]

    with ThreadPoolExecutor(len(lanes)) as pool:
        results = [result for found in pool.map(run_lane, lanes) for result in found]
    report(results)
    return int(any(result.code for result in results))


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m tools test-all", allow_abbrev=False)
    parser.add_argument("--require", type=suites, help="suites that must not be skipped")
    parser.add_argument("--only", type=suites, default=[], help="suites to run")
    options, for_pytest = parser.parse_known_args(arguments)
    if options.require is None:
        options.require = list(SUITES) if os.environ.get("CI") == "true" else []
    return options, [argument for argument in for_pytest if argument != "--"]


def suites(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := set(names) - set(SUITES):
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(SUITES)}")
    return names


def run(name: str, required: bool, for_pytest: list[str], *, live: bool) -> Result:
    """Run a suite. Print its output while it runs if ``live``, or else when it ends."""
    suite = SUITES[name]
    if suite.database != "sqlite" and (absent := why_absent(suite.database)):
        return Result(suite.label, absent=absent, code=int(required))
    heading = f"\n=== {suite.label} ==="
    print(heading if live else f"{suite.label} begins", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        xml = Path(folder, "junit.xml")
        environ: dict[str, Any] = ENVIRON | {
            "TEST_DATABASE": suite.database,
            "TEST_EVERY_REVISION": "1",
            "TESTS_REQUIRED": "1" if required else None,
        }
        # `-m ""` takes back the "not slow" of pyproject.toml.
        arguments = ("-m", "", *suite.options, *suite.paths, *for_pytest, f"--junitxml={xml}")
        began = time.monotonic()
        if live:
            code = module("pytest", *arguments, **environ)
        else:
            with tempfile.TemporaryFile() as printed:
                code = module("pytest", *arguments, into=printed, **environ)
                printed.seek(0)
                print(f"{heading}\n{printed.read().decode('utf-8', 'replace')}", flush=True)
        seconds = time.monotonic() - began
        return Result(suite.label, *counted(xml), seconds=seconds, code=code)


def counted(xml: Path) -> tuple[int, int, int]:
    """Return how many tests passed, failed and were skipped, from pytest's own report."""
    if not xml.exists():
        return 0, 0, 0
    counts = next(ElementTree.parse(xml).iter("testsuite")).attrib
    tests, skipped = int(counts["tests"]), int(counts["skipped"])
    failed = int(counts["failures"]) + int(counts["errors"])
    return tests - failed - skipped, failed, skipped


def report(results: list[Result]) -> None:
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps([asdict(result) for result in results], indent=1))
    totals = (
        f"{sum(getattr(result, what) for result in results)} {what}"
        for what in ("passed", "failed", "skipped")
    )
    print("\n" + "\n".join(map(str, results)) + f"\ntests: {', '.join(totals)}", flush=True)
