"""``manage.py mcp_audit`` exports the entries that its options select."""

from __future__ import annotations

import csv
import io
import json
import re
import stat
from datetime import UTC, datetime

import pytest
from django.core.management import CommandError, call_command

from django_mcp.models import AuditEntry

pytestmark = pytest.mark.django_db


def add(**given):
    values = {
        "server": "default", "method": "tools/call", "name": "refund", "user": "7",
        "username": "alice", "client": "app", "transport": "http", "revision": "2025-11-25",
        "outcome": "ok", "duration": 0.25, "queries": 3, "rows_written": 2,
    }  # fmt: skip
    return AuditEntry.objects.create(**values | given)


def run(*arguments):
    out, err = io.StringIO(), io.StringIO()
    call_command("mcp_audit", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def found(*arguments):
    out, _ = run(*arguments, "--format", "jsonl")
    return [json.loads(line)["id"] for line in out.splitlines()]


def test_options_select_entries():
    first = add(at=datetime(2026, 1, 31, 23, tzinfo=UTC)).pk
    other = add(
        at=datetime(2026, 2, 1, tzinfo=UTC), user="8", username="bob", client="other",
        name="look", outcome="denied",
    ).pk  # fmt: skip
    assert found() == [first, other]
    for options in (
        ["--until", "2026-02-01T00:00:00+00:00"], ["--user", "alice"], ["--user", "7"],
        ["--client", "app"], ["--tool", "refund"], ["--outcome", "ok"],
    ):  # fmt: skip
        assert found(*options) == [first], options
    assert found("--since", "2026-02-01T00:00:00Z") == [other]
    assert found("--user", "bob", "--outcome", "ok") == []
    assert found("--server", "default") == [first, other]
    with pytest.raises(CommandError, match="nothing"):
        found("--server", "nothing")


@pytest.mark.parametrize("option", ["--since", "--until"])
@pytest.mark.parametrize("text", ["yesterday", "2026-02-30"])
def test_invalid_time_is_an_error_that_shows_the_format(option, text):
    message = f"{option}: '{text}' is not a date or time. Write 2026-01-31 or 2026-01-31T08:00."
    with pytest.raises(CommandError, match=re.escape(message)):
        run(option, text)


def test_csv_has_a_header_and_no_formulas():
    add(name="=1+1", arguments={"a": 1})
    out, err = run()
    (row,) = csv.DictReader(io.StringIO(out, newline=""))
    assert row["name"] == "'=1+1" and row["arguments"] == '{"a": 1}' and row["session"] == ""
    assert err.strip() == "Exported: 1."


@pytest.mark.parametrize("name", ["x;=1+1;y", "x; +1", "x\t-1", "x|@a", ";;=1"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv_has_no_formula_whatever_separates_the_cells(name, separator):
    """Attack: Excel separates by semicolons in countries that write 1,5."""
    add(name=name)
    out, _ = run()
    for row in csv.reader(io.StringIO(out, newline=""), delimiter=separator):
        assert not [cell for cell in row if cell.strip().startswith(("=", "+", "-", "@"))]


def test_output_is_a_new_file_of_its_owner(tmp_path):
    add(username="Zoë")
    path = tmp_path / "audit.jsonl"
    out, _ = run("--format", "jsonl", "--output", str(path))
    assert out == "" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["username"] == "Zoë"
    with pytest.raises(CommandError, match="cannot be written: File exists"):
        run("--output", str(path))


def test_progress_is_reported_on_stderr(monkeypatch):
    monkeypatch.setattr("django_mcp.management.audit_export.ENTRIES_PER_PAGE", 2)
    monkeypatch.setattr("django_mcp.management.commands.mcp_audit.PROGRESS_SECONDS", -1)
    for _ in range(3):
        add()
    out, err = run()
    assert len(out.splitlines()) == 4
    lines = err.splitlines()
    assert lines[0].startswith("2 entries, until ") and lines[-1] == "Exported: 3."
