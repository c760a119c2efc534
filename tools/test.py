"""`python -m tools test`: the tests on every database there is, and a line for each in the end.

    python -m tools test [--require postgres,mariadb] [--only sqlite,example] [PYTEST ARGUMENTS]

The rule: what did not run is told with its reason, and is a failure where it was required
(everything is, where CI=true): so is a test that must be skipped. The exit code is 0 only if
every suite that ran passed.
"""

import argparse
import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from tools.databases import why_absent
from tools.environment import ROOT
from tools.run import module

REPORT = ROOT / "build" / "tests.json"

# What these test is the same on every database: they run once, on SQLite.
DATABASE_NEUTRAL = (
    "tests/benchmarks",
    "tests/dispatch/test_noise.py",
    "tests/docs",
    "tests/faults/test_excuses.py",
    "tests/hosts",
    "tests/issuers/test_end_to_end.py",
    "tests/issuers/test_fetching.py",
    "tests/management",
    "tests/oauth/test_disconnecting.py",
    "tests/oauth/test_end_to_end.py",
    "tests/oauth/test_step_up.py",
    "tests/oauth/test_third_party.py",
    "tests/protocol",
    "tests/requirements",
    "tests/restarts/test_owners.py",
    "tests/restarts/test_readers.py",
    "tests/restarts/test_restarts.py",
    "tests/restarts/test_sse.py",
    "tests/restarts/test_stuck.py",
    "tests/restarts/test_subscriptions.py",
    "tests/restarts/test_workers.py",
    "tests/security/test_canaries.py",
    "tests/security/test_combinations.py",
    "tests/spec",
    "tests/test_architecture.py",
    "tests/test_oracle.py",
    "tests/testing",
    "tests/tools",
    "tests/web",
)
EXAMPLE = "tests/example_project"
BROWSER = "tests/browser"
CLIENTS = "tests/clients"
CONFORMANCE = "tests/conformance"


@dataclass(frozen=True)
class Suite:
    """One run of pytest."""

    label: str
    arguments: tuple[str, ...] = ()
    server: str | None = None

    @property
    def environ(self) -> dict[str, str | None]:
        # Taken away, so that the settings named by the suite's own configuration file count.
        return {"TEST_DATABASE": self.server or "sqlite", "DJANGO_SETTINGS_MODULE": None}


# Two on each core, for many tests wait for a process; a module stays with one. Which modules begin
# first is not told by how many tests they have.
SPREAD = ("-n", str(2 * (os.cpu_count() or 1)), "--dist", "loadscope", "--no-loadscope-reorder")
APART = (f"--ignore={BROWSER}", f"--ignore={CLIENTS}")
NOT_AGAIN = (*APART, *(f"--ignore={path}" for path in DATABASE_NEUTRAL))
SUITES = {
    "sqlite": Suite("SQLite", APART),
    "example": Suite("Example project", (EXAMPLE,)),
    "browser": Suite("Browser", (BROWSER, "-n", "0")),
    "clients": Suite("Clients", (CLIENTS, "-n", "0")),  # it runs several conversations at once
    "conformance": Suite("Conformance", (CONFORMANCE, "-n", "0")),  # one server, and nothing beside
    "postgres": Suite("PostgreSQL", NOT_AGAIN, "postgres"),
    "mariadb": Suite("MariaDB", NOT_AGAIN, "mariadb"),
}


@dataclass
class Result:
    """What came of a suite."""

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
    results = [
        outcome(name, name in options.require, for_pytest) for name in options.only or SUITES
    ]
    report(results)
    return int(any(result.code for result in results))


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m tools test", allow_abbrev=False)
    parser.add_argument("--require", type=suites, help="suites that must not be skipped")
    parser.add_argument("--only", type=suites, default=[], help="suites to run")
    options, for_pytest = parser.parse_known_args(arguments)
    if options.require is None:
        options.require = list(SUITES) if os.environ.get("CI") == "true" else []
    return options, [argument for argument in for_pytest if argument != "--"]


def suites(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := set(names) - set(SUITES):
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not of {', '.join(SUITES)}")
    return names


def outcome(name: str, required: bool, for_pytest: list[str]) -> Result:
    suite = SUITES[name]
    absent = why_absent(suite.server) if suite.server else None
    if absent:
        return Result(suite.label, absent=absent, code=int(required))
    print(f"\n=== {suite.label} ===", flush=True)
    return run_suite(suite, for_pytest, required)


def run_suite(suite: Suite, for_pytest: list[str], required: bool = False) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        xml = Path(folder, "junit.xml")
        arguments = [*SPREAD, *suite.arguments, *for_pytest, f"--junitxml={xml}"]
        began = time.monotonic()
        environ = suite.environ | {"TESTS_REQUIRED": "1" if required else None}
        code = module("pytest", *arguments, **environ)
        seconds = time.monotonic() - began
        return Result(suite.label, *counted(xml), seconds=seconds, code=code)


def counted(xml: Path) -> tuple[int, int, int]:
    """How many tests passed, failed and were skipped, as pytest wrote it down."""
    if not xml.exists():
        return 0, 0, 0
    told = next(ElementTree.parse(xml).iter("testsuite")).attrib
    tests, skipped = int(told["tests"]), int(told["skipped"])
    failed = int(told["failures"]) + int(told["errors"])
    return tests - failed - skipped, failed, skipped


def report(results: list[Result]) -> None:
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps([asdict(result) for result in results], indent=1))
    print("\n" + "\n".join(map(str, results)))
    print(closing(results), flush=True)


def closing(results: list[Result]) -> str:
    passed, failed, skipped = (
        sum(getattr(result, what) for result in results) for what in ("passed", "failed", "skipped")
    )
    return f"tests: {passed} passed, {failed} failed, {skipped} skipped"
