"""`python -m tools conformance`: the server is started and ended, and what failed is a failure."""

import subprocess
import sys

import pytest

from tools import authorization, conformance, suite
from tools.scenarios import REQUIRED, SUCCEEDING, Scenario, Verdict

# Answers everything by 404, as the server does that is not mounted.
SOMEBODY = """
import http.server, sys
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.BaseHTTPRequestHandler).serve_forever()
"""  # noqa: E501


@pytest.fixture
def instead(monkeypatch):
    """Another program is started instead of the server."""
    monkeypatch.setattr(conformance, "prepare", lambda environ: None)

    def serve(code):
        monkeypatch.setitem(conformance.SERVERS, "uvicorn", ("-c", code))

    return serve


def test_it_is_served_and_ended(instead, tmp_path):
    instead(SOMEBODY)
    with conformance.served(tmp_path) as url:
        assert conformance.answers(url)
    assert not conformance.answers(url)


def test_a_server_that_does_not_come_up_is_told(instead, tmp_path):
    instead("raise SystemExit('no such application')")
    with pytest.raises(SystemExit, match="(?s)Nobody answers at http.*no such application"):
        conformance.served(tmp_path).__enter__()


def test_a_server_that_hears_no_signal_is_ended(monkeypatch):
    monkeypatch.setattr(conformance, "PATIENCE", 0.2)
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(60)"
    deaf = subprocess.Popen([sys.executable, "-uc", code], stdout=subprocess.PIPE)
    with deaf:
        assert deaf.stdout.readline().startswith(b"deaf")
        conformance.stop(deaf)
    assert deaf.returncode


@pytest.mark.parametrize("server", conformance.SERVERS)
def test_every_server_is_a_program_that_is_there(server):
    command = [sys.executable, *conformance.SERVERS[server][:2], "--help"]
    assert subprocess.run(command, capture_output=True).returncode == 0


# What it says in the end.


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """The suite is installed, and every set comes out as given."""
    monkeypatch.setattr(suite, "FOLDER", tmp_path)
    monkeypatch.setattr(suite, "why_absent", lambda: "")
    monkeypatch.setattr(suite, "install", lambda: None)

    def come_out(revision, url, results):
        return Verdict(revision, {one.name: one for one in outcomes.get(revision, [])}, 1.0)

    outcomes: dict[str, list[Scenario]] = {}
    monkeypatch.setattr(suite, "run_set", come_out)
    monkeypatch.setattr(authorization, "run_set", come_out)
    return outcomes


def passed(name):
    ids = SUCCEEDING.get(name, {name})
    return Scenario(name, [{"id": id, "status": "SUCCESS"} for id in ids])


URL = ["--url", "http://127.0.0.1:1/mcp"]


def test_all_passed_is_no_failure(ran, capsys):
    ran.update({revision: [passed(n) for n in names] for revision, names in REQUIRED.items()})
    assert conformance.main(URL) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told[: len(REQUIRED)]] == list(REQUIRED)


@pytest.mark.parametrize("failing", REQUIRED)
def test_one_missing_scenario_is_a_failure(ran, capsys, failing):
    ran.update({revision: [passed(n) for n in names] for revision, names in REQUIRED.items()})
    gone = ran[failing].pop()
    assert conformance.main(URL) == 1
    assert f"{gone.name}:did not run" in capsys.readouterr().out


def test_only_the_sets_asked_for_are_judged(ran):
    ran["2026-07-28"] = [passed(name) for name in REQUIRED["2026-07-28"]]
    assert conformance.main([*URL, "--sets", "2026-07-28"]) == 0
    assert conformance.main([*URL, "--sets", "2026-07-28, 2025-11-25"]) == 1


def test_an_unknown_set_is_a_mistake(capsys):
    with pytest.raises(SystemExit):
        conformance.main(["--sets", "2024-11-05"])
    assert "2024-11-05: not of 2025-11-25, 2026-07-28, authorization" in capsys.readouterr().err


def test_what_cannot_be_run_is_told(monkeypatch):
    monkeypatch.setattr(suite, "why_absent", lambda: "there is no npm on the PATH")
    with pytest.raises(SystemExit, match="cannot be run: there is no npm"):
        conformance.main([])
