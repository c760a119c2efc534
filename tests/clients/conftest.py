"""Real clients hold a conversation with the atlas each, once; the tests look at what came of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from .rows import HERE, ROOT, ROWS, Row

CITIES = 300
AT_ONCE = 2
FEATURES = (
    "list", "call", "progress", "log", "elicitation", "sampling", "cancel", "read", "complete",
    "page",
)  # fmt: skip
JSON = dict[str, Any]

cells: dict[tuple[str, str], str] = {}


class Told(dict[str, Any]):
    """What a driver told, feature by feature, and what the server wrote on stderr meanwhile."""

    log: str


@pytest.fixture(scope="session")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of the atlas's largest cities, and of Alice's and Bob's trips."""
    database = tmp_path_factory.mktemp("atlas") / "atlas.sqlite3"
    for command in (("migrate",), ("load_atlas", f"--largest={CITIES}"), ("demo_users",)):
        subprocess.run(
            [sys.executable, "manage.py", *command, "-v0"],
            cwd=ROOT,
            env=environment(database),
            check=True,
        )
    return database


def environment(database: Path) -> dict[str, str]:
    """The environment of a process that is none of the tests' own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return kept | {
        "ATLAS_DATABASE": str(database),
        "ATLAS_PYTHON": sys.executable,
        "DJANGO_SETTINGS_MODULE": "tests.clients.settings",
        "PYTHONWARNINGS": "",
    }


@pytest.fixture(scope="session")
def conversations(
    request: pytest.FixtureRequest, atlas: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Row, Future[Told]]]:
    """The conversations of every row that a test asks for, a few at a time."""
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    wanted = {call.params["row"] for call in calls if call and "row" in call.params}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            row: pool.submit(converse, row, atlas, tmp_path_factory.mktemp("conversation"))
            for row in ROWS
            if row in wanted and not row.why_absent
        }


def converse(row: Row, atlas: Path, folder: Path) -> Told:
    """Drive one client through the scenario, on a database of its own."""
    database, log = folder / "atlas.sqlite3", folder / "server.log"
    shutil.copy(atlas, database)
    done = subprocess.run(
        [row.python, str(HERE / row.driver), str(ROOT / "manage.py"), str(log), row.mode],
        cwd=ROOT,
        env=environment(database) | {"ASKED_REVISION": row.asks},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = Told(json.loads(done.stdout))
    told.log = log.read_text(encoding="utf-8")
    return told


@pytest.fixture(params=ROWS, ids=lambda row: row.id)
def row(request: pytest.FixtureRequest) -> Row:
    """Each client in each revision; skipped, or failed where that is required, if not installed."""
    row: Row = request.param
    if row.why_absent:
        absent = pytest.fail if os.environ.get("TESTS_REQUIRED") else pytest.skip
        absent(row.why_absent)
    return row


@pytest.fixture
def told(row: Row, conversations: dict[Row, Future[Told]]) -> Told:
    """What came of the row's conversation."""
    return conversations[row].result()


# The table.


@pytest.fixture
def cell(request: pytest.FixtureRequest, row: Row) -> Iterator[dict[str, str]]:
    """The table's cell for this test; ``cell["is"]`` says what it is if not simply "yes"."""
    feature = request.node.originalname.removeprefix("test_")
    noted = {"is": "yes"}
    request.node.user_properties.append(("cell", (str(row), feature, noted)))
    yield noted


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, value in report.user_properties:
        if name == "cell" and report.when == "call":
            row, feature, noted = value
            cells[row, feature] = noted["is"] if report.passed else report.outcome.upper()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    rows = [str(row) for row in ROWS if any(seen == str(row) for seen, _ in cells)]
    if not rows:
        return
    wide = max(map(len, rows)) + 2
    terminalreporter.section("clients and the atlas, over stdio")
    terminalreporter.write_line(" " * wide + "".join(f"{name:<12}" for name in FEATURES))
    for row in rows:
        line = (f"{cells.get((row, feature), ''):<12}" for feature in FEATURES)
        terminalreporter.write_line(f"{row:<{wide}}" + "".join(line))
    for why in sorted({row.why_absent for row in ROWS} - {""}):
        terminalreporter.write_line(f"Not driven: {why}")
