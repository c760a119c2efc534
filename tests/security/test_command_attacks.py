"""Attacks on the people who run commands: terminal control characters, tokens and files."""

from __future__ import annotations

import io
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.core.management import CommandError, call_command

import django_mcp as mcp
from django_mcp.management.client_files import write
from django_mcp.management.commands import mcp_call, mcp_inspect
from django_mcp.management.doctor.installation import is_local
from django_mcp.management.doctor.live import LiveChecks
from django_mcp.web.clients import client

# It sets a terminal's title, moves its cursor, and turns the direction of its text.
CONTROL_CHARACTERS = "\x1b]0;owned\x07\x1b[2J\x9b31mevil\u202e"
TOKEN = "mcp_" + "a" * 43


class Terminal(io.StringIO):
    def isatty(self):
        return True


def terminal_output(command, *arguments):
    """Return the whole output of a command at a terminal, and its exit code."""
    out, err = Terminal(), Terminal()
    made = command.Command(stdout=out, stderr=err, no_color=True)
    try:
        made.run_from_argv(["manage.py", command.__name__.rpartition(".")[2], *arguments])
    except SystemExit as ended:
        return out.getvalue() + err.getvalue(), ended.code
    return out.getvalue() + err.getvalue(), 0


def is_harmless(text):
    return all(one.isprintable() or one in "\n\t" for one in text)


@pytest.fixture
def malicious_server(server, db):
    """A server whose texts contain control characters."""

    @server.tool(permission=mcp.PUBLIC, description=f"Says it. {CONTROL_CHARACTERS}")
    def say(request: mcp.Request, fails: str = "") -> str:
        request.log("info", CONTROL_CHARACTERS)
        request.progress(1, 2, CONTROL_CHARACTERS)
        if fails == "tool":
            raise mcp.ToolError(CONTROL_CHARACTERS)
        if fails == "bug":
            raise RuntimeError(CONTROL_CHARACTERS)
        return CONTROL_CHARACTERS

    server.ready()
    return server.name


@pytest.mark.parametrize("fails", ["", "tool", "bug"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_results_contain_no_control_characters(malicious_server, fails, form):
    text, code = terminal_output(
        mcp_call, "say", f"fails={fails}", "--server", malicious_server, "--format", form
    )
    assert "evil" in text and is_harmless(text) and code == bool(fails)


@pytest.mark.parametrize("more", [(), ("say",), ("--format", "json")])
def test_descriptions_contain_no_control_characters(malicious_server, more):
    text, code = terminal_output(mcp_inspect, *more, "--server", malicious_server)
    assert "evil" in text and is_harmless(text) and code == 0


# Requests of mcp_doctor.


class RecordingHandler(BaseHTTPRequestHandler):
    """Records the host and the authorization of each request."""

    def do_POST(self):
        self.server.seen.append((self.headers["Host"], self.headers.get("Authorization")))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.leads_to and "/there" not in self.path:
            self.send_response(307)
            self.send_header("Location", self.server.leads_to)
            self.end_headers()
            return
        found = {"supportedVersions": ["2026-07-28"], "tools": []}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": found}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_DELETE = do_OPTIONS = do_POST

    def log_message(self, *args):
        pass


@pytest.fixture
def recording_server():
    found = []

    def listen(leads_to=None):
        made = ThreadingHTTPServer(("127.0.0.1", 0), RecordingHandler)
        made.seen, made.leads_to = [], leads_to
        threading.Thread(target=made.serve_forever, daemon=True).start()
        found.append(made)
        return made, f"http://127.0.0.1:{made.server_port}"

    yield listen
    for made in found:
        made.shutdown()
        made.server_close()


def test_doctor_sends_its_token_only_to_the_given_host(recording_server):
    server, url = recording_server()
    assert [*LiveChecks(f"{url}/mcp", TOKEN, 5).findings()]
    shown_to = {host for host, header in server.seen if TOKEN in (header or "")}
    assert shown_to == {url.removeprefix("http://")}
    assert len({host for host, _ in server.seen}) > 1  # it asks by another name, too


def test_doctor_does_not_follow_redirects_with_its_token(recording_server):
    other, elsewhere = recording_server()
    server, url = recording_server(f"{elsewhere}/there")
    assert [*LiveChecks(f"{url}/mcp", TOKEN, 5).findings()]
    assert server.seen and not other.seen


@pytest.mark.parametrize(
    "host", ["localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1evil", "evil", "0.0.0.0"]
)
def test_host_that_looks_local_is_not_local(host):
    assert not is_local(host)


# Files of clients.


def write_entry(path, name="shop", token=TOKEN, key="cursor"):
    file = client(key).file
    return write(file, path, name, file.http("https://shop.example/mcp", token), secret=bool(token))


@pytest.fixture
def permissive_umask():
    """A user whose new files everybody can read."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_files_with_a_token_are_readable_only_by_the_owner(tmp_path, permissive_umask):
    path = tmp_path / "new" / "mcp.json"
    write_entry(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o666)
    backup = write_entry(path, token=TOKEN.replace("a", "b")).backup
    assert [one.stat().st_mode & 0o077 for one in (path, backup)] == [0, 0]
    assert sorted(tmp_path.joinpath("new").iterdir()) == sorted([path, backup])


def test_symbolic_link_to_another_file_is_not_overwritten(tmp_path):
    """A directory of somebody else may contain a link to any file of the user."""
    target = tmp_path / "rc"
    target.write_text("export PATH\n")
    link = tmp_path / "mcp.json"
    link.symlink_to(target)
    with pytest.raises(Exception, match="stays as it is"):
        write_entry(link, token="")
    assert target.read_text() == "export PATH\n" and link.is_symlink()


@pytest.mark.parametrize("name", ['a"]\n[b', "a.b", "a b", "../x", "ü", "a" * 65])
def test_invalid_server_name_is_rejected(name, db):
    with pytest.raises(CommandError, match="--name must be 1 to 64 letters"):
        call_command("mcp_connect", "codex", "--name", name)


@pytest.mark.parametrize("token", ["a b", 'a"', "a\nb", "$(id)", "${HOME}", "a;b", "ü"])
def test_invalid_token_is_rejected_without_repeating_it(token, db, capsys):
    with pytest.raises(CommandError) as refused:
        call_command("mcp_connect", "cursor", "--token", token)
    assert token not in str(refused.value) + "".join(capsys.readouterr())
