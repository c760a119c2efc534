"""What an attacker tries on those who run a site: by what commands print, write and send."""

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
NASTY = "\x1b]0;owned\x07\x1b[2J\x9b31mevil\u202e"
TOKEN = "mcp_" + "a" * 43


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(command, *arguments):
    """All that a terminal is shown of a command, and whether it went well."""
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
def nasty(server, db):
    """A server whose rows were written by somebody who thinks of the developer's terminal."""

    @server.tool(permission=mcp.PUBLIC, description=f"Says it. {NASTY}")
    def say(request: mcp.Request, fails: str = "") -> str:
        request.log("info", NASTY)
        request.progress(1, 2, NASTY)
        if fails == "tool":
            raise mcp.ToolError(NASTY)
        if fails == "bug":
            raise RuntimeError(NASTY)
        return NASTY

    server.ready()
    return server.name


@pytest.mark.parametrize("fails", ["", "tool", "bug"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_no_result_commands_the_terminal(nasty, fails, form):
    text, code = shown(mcp_call, "say", f"fails={fails}", "--server", nasty, "--format", form)
    assert "evil" in text and is_harmless(text) and code == bool(fails)


@pytest.mark.parametrize("more", [(), ("say",), ("--format", "json")])
def test_no_description_commands_the_terminal(nasty, more):
    text, code = shown(mcp_inspect, *more, "--server", nasty)
    assert "evil" in text and is_harmless(text) and code == 0


# What the doctor sends.


class Seen(BaseHTTPRequestHandler):
    """Whoever answers at an address, and keeps what comes."""

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
def listening():
    found = []

    def listen(leads_to=None):
        made = ThreadingHTTPServer(("127.0.0.1", 0), Seen)
        made.seen, made.leads_to = [], leads_to
        threading.Thread(target=made.serve_forever, daemon=True).start()
        found.append(made)
        return made, f"http://127.0.0.1:{made.server_port}"

    yield listen
    for made in found:
        made.shutdown()
        made.server_close()


def test_the_doctor_shows_its_token_to_nobody_else(listening):
    server, url = listening()
    assert [*LiveChecks(f"{url}/mcp", TOKEN, 5).findings()]
    shown_to = {host for host, header in server.seen if TOKEN in (header or "")}
    assert shown_to == {url.removeprefix("http://")}
    assert len({host for host, _ in server.seen}) > 1  # it asks by another name, too


def test_the_doctor_takes_its_token_along_no_redirect(listening):
    other, elsewhere = listening()
    server, url = listening(f"{elsewhere}/there")
    assert [*LiveChecks(f"{url}/mcp", TOKEN, 5).findings()]
    assert server.seen and not other.seen


@pytest.mark.parametrize(
    "host", ["localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1evil", "evil", "0.0.0.0"]
)
def test_what_only_looks_local_is_not(host):
    assert not is_local(host)


# What is written.


def written(path, name="shop", token=TOKEN, key="cursor"):
    file = client(key).file
    return write(file, path, name, file.http("https://shop.example/mcp", token), secret=bool(token))


@pytest.fixture
def careless():
    """A user whose files everybody may read."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_nobody_else_reads_what_a_token_is_in(tmp_path, careless):
    path = tmp_path / "new" / "mcp.json"
    written(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o666)
    backup = written(path, token=TOKEN.replace("a", "b")).backup
    assert [one.stat().st_mode & 0o077 for one in (path, backup)] == [0, 0]
    assert sorted(tmp_path.joinpath("new").iterdir()) == sorted([path, backup])


def test_a_link_leads_to_no_file_of_another_kind(tmp_path):
    """A folder that somebody else made may hold a link to whatever its user has."""
    target = tmp_path / "rc"
    target.write_text("export PATH\n")
    link = tmp_path / "mcp.json"
    link.symlink_to(target)
    with pytest.raises(Exception, match="stays as it is"):
        written(link, token="")
    assert target.read_text() == "export PATH\n" and link.is_symlink()


@pytest.mark.parametrize("name", ['a"]\n[b', "a.b", "a b", "../x", "ü", "a" * 65])
def test_no_name_of_a_server_is_anything_else(name, db):
    with pytest.raises(CommandError, match="--name is 1 to 64 letters"):
        call_command("mcp_connect", "codex", "--name", name)


@pytest.mark.parametrize("token", ["a b", 'a"', "a\nb", "$(id)", "${HOME}", "a;b", "ü"])
def test_no_token_is_anything_else_nor_repeated(token, db, capsys):
    with pytest.raises(CommandError) as refused:
        call_command("mcp_connect", "cursor", "--token", token)
    assert token not in str(refused.value) + "".join(capsys.readouterr())
