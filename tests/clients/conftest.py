"""Each real client runs the scenario with the atlas once, and the tests check the results."""

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

from tests.servers import Served

from .rows import HERE, ROOT, ROWS, STDIO, Row

APPLICATION = "tests.clients.asgi:application"
CITIES, DATABASE, TOKEN = 300, "atlas.sqlite3", "atlas.sqlite3.token"
AT_ONCE = 4
FEATURES = (
    "list", "call", "progress", "log", "elicitation", "sampling", "cancel", "read", "complete",
    "page", "resume", "public",
)  # fmt: skip
JSON = dict[str, Any]

cells: dict[tuple[Row, str], str] = {}


class Told(dict[str, Any]):
    """The results of a driver by feature, and the stderr of the server."""

    log: str


@pytest.fixture(scope="session")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with databases (the largest cities, trips of Alice and Bob) and Alice's token."""
    folder = tmp_path_factory.mktemp("atlas")
    subprocess.run(
        [sys.executable, "manage.py", "prepare_demo", f"--largest={CITIES}"],
        cwd=ROOT,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process, without pytest's variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return kept | {
        "ATLAS_DATABASE": str(folder / DATABASE),
        "ATLAS_PYTHON": sys.executable,
        "DJANGO_SETTINGS_MODULE": "tests.clients.settings",
        "PYTHONWARNINGS": "",
    }


@pytest.fixture(scope="session")
def conversations(
    request: pytest.FixtureRequest, atlas: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Row, Future[Told]]]:
    """Run the scenarios that the tests need, a few concurrently, in their order."""
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    wanted = dict.fromkeys(call.params["row"] for call in calls if call and "row" in call.params)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            row: pool.submit(converse, row, atlas, tmp_path_factory.mktemp("conversation"))
            for row in wanted
            if not row.why_absent
        }


def converse(row: Row, atlas: Path, folder: Path) -> Told:
    """Run one client through the scenario, on its own databases."""
    shutil.copytree(atlas, folder, dirs_exist_ok=True)
    environ = environment(folder) | {"ASKED_REVISION": row.asks}
    if row.server == STDIO:
        return drive(row, environ, folder / "log.txt")
    with Served(row.server, folder, application=APPLICATION, **environ) as server:
        endpoint = f"http://127.0.0.1:{server.port}/mcp{'/sse' if row.sse else ''}"
        environ |= {"ATLAS_ENDPOINT": endpoint, "ATLAS_TOKEN": (folder / TOKEN).read_text()}
        environ |= {"ATLAS_SSE": "1"} if row.sse else {}
        told = drive(row, environ, server.log)
        server.terminate()
        assert server.ended() in server.exit_codes, server.told()
    return told


def drive(row: Row, environ: dict[str, str], log: Path) -> Told:
    done = subprocess.run(
        [row.python, str(HERE / row.driver), str(ROOT / "manage.py"), str(log), row.mode],
        cwd=ROOT,
        env=environ,
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
    """Each client in each revision. Skip, or fail if required, if it is not installed."""
    row: Row = request.param
    if row.why_absent:
        absent = pytest.fail if os.environ.get("TESTS_REQUIRED") else pytest.skip
        absent(row.why_absent)
    return row


@pytest.fixture
def told(row: Row, conversations: dict[Row, Future[Told]]) -> Told:
    """The results of the row's scenario."""
    return conversations[row].result()


# The table.


@pytest.fixture
def cell(request: pytest.FixtureRequest, row: Row) -> Iterator[dict[str, str]]:
    """The table's cell for this test; ``cell["is"]`` says what it is if not simply "yes"."""
    feature = request.node.originalname.removeprefix("test_")
    noted = {"is": "yes"}
    request.node.user_properties.append(("cell", (ROWS.index(row), feature, noted)))
    yield noted


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, value in report.user_properties:
        if name == "cell" and report.when == "call":
            row, feature, noted = value  # as it came from the process that ran the test
            cells[ROWS[row], feature] = noted["is"] if report.passed else report.outcome.upper()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for way in dict.fromkeys(row.way for row in ROWS):
        if rows := [row for row in ROWS if row.way == way and (row, "list") in cells]:
            terminalreporter.section(f"clients and the atlas, over {way}")
            for line in table(rows):
                terminalreporter.write_line(line)
    if cells:
        for why in sorted({row.why_absent for row in ROWS} - {""}):
            terminalreporter.write_line(f"Not driven: {why}")


def table(rows: list[Row]) -> Iterator[str]:
    wide = max(len(str(row)) for row in rows) + 2
    shown = [feature for feature in FEATURES if (rows[0], feature) in cells]
    yield " " * wide + "".join(f"{name:<12}" for name in shown)
    for row in rows:
        yield f"{row!s:<{wide}}" + "".join(f"{cells.get((row, name), ''):<12}" for name in shown)
