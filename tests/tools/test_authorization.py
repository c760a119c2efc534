"""The run against an authorization server: who registers, who is sent, and what of it is told."""

import json
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from tools import authorization, suite

CLIENT = "client-7"
# What the suite does, in short: tells where to go, waits who comes back, and writes the outcome.
SUITE = """
import json, pathlib, socket, sys
given = dict(zip(sys.argv[2::2], sys.argv[3::2]))
with socket.create_server(("127.0.0.1", int(given["--port"]))) as callback:
    print("Access the following URL in your browser:", flush=True)
    print(f"{given['--url']}/authorize?client={given['--client-id']}", flush=True)
    callback.accept()[0].close()
place = pathlib.Path(given["--output-dir"], "authorization-server-authorization-code-grant-2026-11-22T18-30-56-318Z")
place.mkdir()
(place / "checks.json").write_text(json.dumps([{"id": "given", "status": "SUCCESS", "details": given}]))
"""  # noqa: E501

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs here are scripts")


class Site(BaseHTTPRequestHandler):
    """Metadata, and a registration."""

    def do_GET(self):
        found = self.path == authorization.WELL_KNOWN and self.server.is_one
        told = {"registration_endpoint": f"{self.server.origin}/register"}
        self.say(200 if found else 404, told)

    def do_POST(self):
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.registered.append(said)
        self.say(201, said | {"client_id": CLIENT})

    def say(self, status, told):
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


@pytest.fixture
def site():
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as serving:
        serving.registered, serving.is_one = [], True
        serving.origin = f"http://127.0.0.1:{serving.server_port}"
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


@pytest.fixture
def sent(monkeypatch, tmp_path):
    """Whither the person is sent; the suite is the short one."""
    script, found = tmp_path / "suite.py", []
    script.write_text(SUITE)
    monkeypatch.setattr(suite, "SCRIPT", script)
    monkeypatch.setattr(suite, "node", lambda: sys.executable)

    def agree(self, url, callback):
        found.append((url, callback))
        socket.create_connection(("127.0.0.1", urlsplit(callback).port)).close()

    monkeypatch.setattr(authorization.Person, "agree", agree)
    return found


def run(site, tmp_path):
    url = f"{site.origin}/mcp"
    return authorization.run_set("authorization", url, tmp_path / "results")


def test_a_client_registers_and_a_person_is_sent_for_it(site, sent, tmp_path):
    (check,) = run(site, tmp_path).ran["authorization-code-grant"].checks
    given, (said,) = check["details"], site.registered
    callback = f"http://127.0.0.1:{given['--port']}/callback"
    assert said["redirect_uris"] == [callback] and said["token_endpoint_auth_method"] == "none"
    assert sent == [(f"{site.origin}/authorize?client={CLIENT}", callback)]
    assert (given["--url"], given["--resource"]) == (site.origin, f"{site.origin}/mcp")


def test_where_nobody_can_register_nothing_ran(site, sent, tmp_path, capsys):
    site.is_one = False
    verdict = run(site, tmp_path)
    assert [one.endswith("did not run to its end") for one in verdict.problems] == [True, True]
    assert "authorization: HTTP Error 404" in capsys.readouterr().out and sent == []


def test_an_answer_that_is_refused_holds_no_connection(site):
    site.is_one = False
    with pytest.raises(HTTPError) as refused:
        authorization.answer(site.origin + authorization.WELL_KNOWN)
    assert refused.value.closed


def test_a_person_who_is_lost_ends_the_run(site, sent, tmp_path, monkeypatch, capsys):
    def lost(self, url, callback):
        raise authorization.Lost("No page led there")

    monkeypatch.setattr(authorization.Person, "agree", lost)
    verdict = run(site, tmp_path)
    assert "authorization-code-grant:did not run to its end" in verdict.problems
    assert "authorization: No page led there" in capsys.readouterr().out
