"""``mcp_doctor``: reports of working servers, broken proxies, other programs and settings."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
from contextlib import closing, contextmanager, suppress
from importlib import metadata

import pytest
from django.core.management import CommandError, call_command
from django.db.migrations.recorder import MigrationRecorder

import django_mcp as mcp
from django_mcp.management.doctor import installation, live
from django_mcp.management.doctor import installation as databases
from django_mcp.management.doctor import installation as inside
from django_mcp.management.doctor.findings import message, ok, run_safely
from django_mcp.management.doctor.live import LiveChecks, body_limit
from django_mcp.protocol.revisions import REVISIONS
from tests.management.proxies import Proxy
from tests.servers import COMMANDS, ROOT, Served, environment, prepare
from tools.ports import free_port

RESPONSE_SECONDS = 15  # for a program that responds, on a busy machine
TIMEOUT_SECONDS = 2.0  # for a program that does not
WRONG = "mcp_" + "w" * 43


def django(folder, *arguments, **more):
    done = subprocess.run(
        [sys.executable, "-m", "django", *arguments],
        cwd=ROOT, env=environment(folder, **more), capture_output=True, text=True,
    )  # fmt: skip
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = prepare(tmp_path_factory.mktemp("doctor"))
    django(made, "createsuperuser", "--noinput", "--username", "alice", "--email", "a@shop.example")
    return made


@pytest.fixture(scope="module")
def token(folder):
    done = django(folder, "mcp_token", "create", "--user", "alice", "--name", "doctor")
    return done.stdout.strip()


@pytest.fixture(scope="module")
def served(folder):
    with Served("uvicorn", folder) as running:
        yield running


def url(port, path="/mcp"):
    return f"http://127.0.0.1:{port}{path}"


def visit(address, token=None, seconds=RESPONSE_SECONDS):
    return list(LiveChecks(address, token, seconds).findings())


def words(found, *levels):
    return [one.words for one in found if one.level in levels]


def only_problem(found):
    """Return the only warning or problem."""
    wrong = [one for one in found if one.level in ("warning", "problem")]
    assert len(wrong) == 1, wrong
    return wrong[0]


# A running server.


@pytest.mark.slow
@pytest.mark.parametrize("shown", [True, False])
def test_working_server_has_no_problems(served, token, shown):
    found = visit(url(served.port), token if shown else None)
    assert words(found, "warning", "problem") == []
    good = "\n".join(words(found, "ok", "note"))
    for told in (
        "An MCP server answers in ",
        f"tools {'with the token' if shown else ''}".strip(),
        "A session starts, answers and ends.",
        "A stream begins in ",
        "An invalid token is rejected",
        "A request without a token gets what is PUBLIC: ",
        "Pages of other sites are rejected.",
        "Other host names are rejected.",
        "/mcp/ is the same server.",
        "A browser gets a page.",
        "The MCP endpoint sees the client's address, 127.0.0.2.",
    ):
        assert told in good
    assert token not in repr(found)


@pytest.mark.parametrize("server", [name for name in COMMANDS if name != "uvicorn"])
@pytest.mark.slow
def test_working_server_has_no_problems_under_every_asgi_server(folder, token, server):
    with Served(server, folder) as running:
        assert words(visit(url(running.port), token), "warning", "problem") == []


def sessions_in(folder):
    with closing(sqlite3.connect(folder / "mcp.sqlite3")) as database:
        return database.execute("SELECT count(*) FROM django_mcp_session").fetchone()


def test_sessions_are_deleted_afterwards(served, folder):
    before = sessions_in(folder)
    assert not words(visit(url(served.port)), "problem")
    assert sessions_in(folder) == before


@pytest.mark.slow
def test_http_sse_server(folder, token):
    with Served("uvicorn", folder, application="tests.management.older:application") as running:
        before = sessions_in(folder)
        for shown in (token, None):
            found = visit(url(running.port), shown)
            assert words(found, "warning", "problem") == []
            assert any(one.startswith("HTTP+SSE is on") for one in words(found, "ok"))
        assert sessions_in(folder) == before
        with Proxy(running.port, strips=True) as proxy:
            wrong = only_problem(visit(proxy.url, token))
    assert re.search(r"HTTP\+SSE names /mcp for POST requests, .* by 40\d", wrong.words), wrong
    assert "the query" in wrong.hint and wrong.part == "HTTP+SSE"


def test_invalid_token_is_reported(served):
    found = visit(url(served.port), WRONG)
    assert (
        only_problem(found).words == "The server rejected the token."
        and "mcp_token list" in only_problem(found).hint
    )
    assert WRONG not in repr(found)


@pytest.mark.slow
def test_command_reports_json_for_a_real_server(served, folder, token):
    done = django(
        folder, "mcp_doctor", url(served.port), "--format", "json",
        DJANGO_MCP_TOKEN=token,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["ok"], done.stdout + done.stderr
    assert token not in done.stdout + done.stderr
    listed = "\n".join(one["words"] for one in told["findings"])
    assert "with the token" in listed and "mcp_stdio starts, answers and stops." in listed
    assert f"Revisions {', '.join(REVISIONS)} work" in listed


# Proxies that break something.


@pytest.mark.parametrize(
    ("broken", "told", "hint"),
    [
        ({"drops": ["mcp-method"]}, "Headers are lost.*Mcp-Method", "forward the header"),
        ({"drops": ["mcp-protocol-version"]}, "Headers are lost.*MCP-Protocol-Version", "forward"),
        ({"drops": ["authorization"]}, "header Authorization does not arrive", "Authorization"),
        ({"loses": ["www-authenticate"]}, "without the header WWW-Authenticate", "forward"),
        ({"loses": ["mcp-session-id"]}, "has no header Mcp-Session-Id", "forward"),
        ({"drops": ["mcp-session-id"]}, "Mcp-Session-Id does not arrive", "forward"),
        ({"drops": ["origin"]}, "Pages of other sites are accepted", "Origin does not arrive"),
        ({"refuses": ["DELETE"]}, "still exists after DELETE", "DELETE"),
        ({"refuses": ["GET"]}, "request for a stream gets 405", "GET requests with Accept"),
        ({"moves": {"/mcp/": "/mcp"}}, "/mcp/ is answered by 301", "without a redirect"),
        ({"moves": {"/mcp": "/mcp/"}}, r"redirects \(301\) to /mcp/", "APPEND_SLASH"),
        ({"moves": {"/mcp": "https://x.example/mcp"}}, "redirect", "the URL of the target"),
        ({"moves": {"/mcp": "https://x.example/mcp/"}}, "redirect", "the URL of the target"),
        ({"forwards": False}, "endpoint believes any client that sends X-Forw", "proxy_set_header"),
        (
            {"drops": ["accept"], "adds": {"Accept": "text/html"}},
            "The server answers 406",
            "See its log",
        ),
    ],
    ids=str,
)
def test_proxy_that_breaks_something_is_reported(served, broken, told, hint):
    with Proxy(served.port, **broken) as proxy:
        wrong = only_problem(visit(proxy.url))
    assert re.search(told, wrong.words), wrong
    assert hint in wrong.hint


def test_proxy_that_replaces_the_host_is_reported(served):
    with Proxy(served.port, drops=["host"], adds={"Host": "localhost"}) as proxy:
        found = visit(proxy.url)
    own, any_host = words(found, "warning")
    assert "itself are rejected" in own and "any name in the header Host" in any_host
    assert not words(found, "problem")


def test_lost_token_is_not_reported_as_invalid(served, token):
    with Proxy(served.port, drops=["authorization"]) as proxy:
        assert "does not arrive" in only_problem(visit(proxy.url, token)).words


@pytest.mark.slow
def test_proxy_that_buffers_streams_is_reported(served):
    with Proxy(served.port, buffers=True) as proxy:
        found = visit(proxy.url, seconds=4)
    wrong = only_problem(found)
    assert "did not answer within 4 seconds" in wrong.words or "sent nothing" in wrong.words
    assert wrong.part == "sessions" and "proxy_buffering off" in wrong.hint


def test_proxy_without_a_server_is_reported():
    with raw_server(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n") as port:
        assert "A proxy cannot reach the server" in only_problem(visit(url(port))).words


@pytest.mark.slow
@pytest.mark.parametrize(("server", "level"), [("daphne", "warning"), ("uvicorn", "ok")])
def test_public_address_without_a_limit_of_bodies_is_a_warning(folder, monkeypatch, server, level):
    monkeypatch.setattr(live, "is_local", lambda host: False)
    monkeypatch.setattr(live, "BODY_LIMIT_SECONDS", 1.0)
    with Served(server, folder) as running:
        (found,) = body_limit(LiveChecks(url(running.port), None, RESPONSE_SECONDS))
    assert found.level == level
    assert "client_max_body_size" in found.hint or level == "ok"


def test_limit_of_bodies_is_not_checked_on_localhost():
    assert list(body_limit(LiveChecks("http://127.0.0.1:1/mcp", None, TIMEOUT_SECONDS))) == []


@pytest.mark.slow
def test_proxy_whose_address_counts_for_every_client_is_reported(folder):
    with Served("uvicorn", folder, FORWARDED_ALLOW_IPS="10.9.9.9") as running:
        with Proxy(running.port) as proxy:
            wrong = only_problem(visit(proxy.url))
        assert "sees the proxy's address, 127.0.0.1, for every client" in wrong.words
        assert "FORWARDED_ALLOW_IPS=127.0.0.1" in wrong.hint
        with Proxy(running.port, forwards=False) as proxy:
            wrong = only_problem(visit(proxy.url))
        assert "the proxy does not forward the client's address" in wrong.words


@pytest.mark.slow
def test_wsgi_server_is_reported(folder):
    wsgi = "django.core.wsgi:get_wsgi_application()"
    with Served("gunicorn", folder, "--worker-class", "sync", application=wsgi) as running:
        wrong = only_problem(visit(url(running.port)))
        assert wrong.words == "A WSGI server answers, gunicorn: MCP needs ASGI."
        assert "uvicorn_worker.UvicornWorker" in wrong.hint
        with Proxy(running.port) as proxy:
            hidden = only_problem(visit(proxy.url))
    assert "no MCP server at this path" in hidden.words and "WSGI server" in hidden.hint


@pytest.mark.parametrize(
    ("name", "is_wsgi"),
    [
        ("WSGIServer/0.2 CPython/3.13.1", True),
        ("waitress", True),
        ("Apache/2.4.62 (Debian) mod_wsgi/5.0.2 Python/3.13", True),
        ("gunicorn/asgi", False),
        ("daphne", False),
        ("nginx/1.27", False),
    ],
)
def test_wsgi_server_is_recognized_by_its_name(name, is_wsgi):
    head = f"HTTP/1.1 404 Not Found\r\nServer: {name}\r\nContent-Length: 0\r\n\r\n"
    with raw_server(head.encode()) as port:
        assert ("A WSGI server answers" in only_problem(visit(url(port))).words) is is_wsgi


# A server without public declarations.

PRIVATE = {
    "private_settings.py": """
from tests.spec.served.settings import *
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django_mcp", "private"]
""",
    "private/__init__.py": "",
    "private/mcp.py": """
import django_mcp as mcp

@mcp.tool(read_only=True)
def whoami(request) -> str:
    return request.user.get_username()
""",
}


@pytest.fixture(scope="module")
def private(folder, tmp_path_factory):
    code = tmp_path_factory.mktemp("code")
    for name, text in PRIVATE.items():
        (code / name).parent.mkdir(exist_ok=True)
        (code / name).write_text(text)
    environ = {"DJANGO_SETTINGS_MODULE": "private_settings", "PYTHONPATH": str(code)}
    with Served("uvicorn", folder, **environ) as running:
        yield running


def test_private_server_without_a_token_is_checked_partly(private):
    found = visit(url(private.port))
    assert words(found, "warning", "problem") == []
    assert "asks for a token" in found[0].words and "DJANGO_MCP_TOKEN" in found[0].hint
    assert "A request without a token is rejected with 401." in words(found, "ok")


def test_private_server_with_a_token_is_checked(private, token):
    found = visit(url(private.port), token)
    assert words(found, "warning", "problem") == []
    assert "It lists 1 tool with the token" in words(found, "ok")


@pytest.mark.parametrize("shown", [True, False])
def test_lost_token_at_a_private_server_is_reported(private, token, shown):
    with Proxy(private.port, drops=["authorization"]) as proxy:
        found = visit(proxy.url, token if shown else None)
    told = words(found, "problem")
    assert told and all("header Authorization does not arrive" in one for one in told)


# Other programs.


@contextmanager
def raw_server(raw):
    """A program that sends these bytes to each client and closes; with None it never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            kept = []
            while True:
                try:
                    connected, _ = listening.accept()
                except OSError:
                    return
                if raw is None:
                    kept.append(connected)
                    continue
                with connected, suppress(OSError):
                    connected.settimeout(5)
                    connected.recv(65_536)
                    connected.sendall(raw)
                    connected.shutdown(socket.SHUT_WR)
                    connected.recv(65_536)

        threading.Thread(target=answer, daemon=True).start()
        yield listening.getsockname()[1]


def http_answer(status, body, kind="text/html"):
    length = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"HTTP/1.1 {status}\r\n{length}".encode() + body


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (
            http_answer("200 OK", b"<h1>It works</h1>"),
            "not that of an MCP server .status 200, text/html",
        ),
        (http_answer("404 Not Found", b"x"), "no MCP server at this path"),
        (http_answer("403 Forbidden", b"CSRF"), "rejected"),
        (http_answer("200 OK", b"[" * 100_000, "application/json"), "not that of an MCP"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 3_000_000, "not that of an MCP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "is not HTTP"),
        (b"", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 100_000, "is not HTTP"),
    ],
    ids=range(8),
)
def test_other_program_is_reported(raw, told):
    with raw_server(raw) as port:
        found = visit(url(port))
    assert [one.level for one in found] == ["problem"]
    assert re.search(told, found[0].words), found


@pytest.mark.slow
def test_silent_program_times_out():
    with raw_server(None) as port:
        assert (
            "did not answer within 2 seconds"
            in only_problem(visit(url(port), seconds=TIMEOUT_SECONDS)).words
        )


@pytest.mark.slow
def test_endless_response_times_out():
    """One byte now and then would reset the timeout of a single read."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ended = threading.Event()

        def drip():
            connected, _ = listening.accept()
            with connected:
                try:
                    while not ended.wait(0.05):
                        connected.sendall(b"x")
                except OSError:
                    ended.set()

        threading.Thread(target=drip, daemon=True).start()
        found = visit(url(listening.getsockname()[1]), seconds=TIMEOUT_SECONDS)
        assert ended.wait(30)
    assert "did not answer within 2 seconds" in only_problem(found).words


def test_closed_port_is_reported():
    port = free_port()
    assert only_problem(visit(url(port))).words == f"Nothing listens at 127.0.0.1:{port}."


def test_https_url_of_a_plain_http_server_is_reported(served):
    found = only_problem(visit(f"https://127.0.0.1:{served.port}/mcp", seconds=RESPONSE_SECONDS))
    assert "TLS to" in found.words and "http://" in found.hint


def test_token_is_not_sent_over_plain_http(monkeypatch, token):
    heard = []

    def ask(self, method, headers, body=None, **more):
        heard.append(dict(headers))
        raise ssl.SSLError("enough")

    visiting = LiveChecks("http://shop.example/mcp", token, TIMEOUT_SECONDS)
    monkeypatch.setattr(type(visiting.client), "ask", ask)
    with pytest.raises(ssl.SSLError):
        list(visiting.findings())
    assert heard and all("Authorization" not in headers for headers in heard)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"[]",
        b'{"jsonrpc": "1.0"}',
        b"data: {\n\n",
        b'"x"',
        b"\xff\xfe",
        b"null",
        b"1e999",
    ],
)
def test_malformed_response_is_ignored(body):
    assert message(body) == {}


# A broken project.


def findings_of(folder, *arguments, **more):
    done = django(folder, "mcp_doctor", "--format", "json", *arguments, **more)
    told = json.loads(done.stdout)
    assert done.returncode == (0 if told["ok"] else 1), done.stderr
    return [(one["level"], one["words"], one["hint"]) for one in told["findings"]]


@pytest.mark.slow
def test_missing_migrations_are_reported(tmp_path):
    prepare(tmp_path)
    django(tmp_path, "migrate", "django_mcp", "0001", "--database", "mcp")
    wrong = [one for one in findings_of(tmp_path) if one[0] == "problem"]
    assert len(wrong) == 1 and "'mcp' (SQLite, sessions) lacks the migrations 0002" in wrong[0][1]
    assert wrong[0][2] == "manage.py migrate --database mcp"


@pytest.mark.slow
def test_missing_database_is_reported_and_not_created(tmp_path):
    found = findings_of(tmp_path)
    told = [one[1] for one in found if "not exist yet" in one[1]]
    assert len(told) == 2 and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_one_failed_check_does_not_hide_others(tmp_path):
    prepare(tmp_path)
    (tmp_path / "db.sqlite3").write_text("this is no database, whatever its name says" * 50)
    found = findings_of(tmp_path)
    assert any("does not answer: file is not a database" in one[1] for one in found)
    assert any("mcp_stdio starts" in one[1] for one in found)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("tests.management.test_mcp_doctor.mounted", "is in tests.management"),
        ("tests.management.test_mcp_doctor.forgot_to_mount", "another view answers there"),
        ("tests.management.test_mcp_doctor.breaks", "fails in .*RuntimeError: broken"),
        ("tests.management.test_mcp_doctor.nothing", "cannot be imported: ImportError"),
        (None, "ASGI_APPLICATION is not set"),
    ],
)
def test_asgi_application_without_the_endpoint_is_reported(settings, path, told):
    settings.ASGI_APPLICATION = path
    found = next(
        iter(installation.application())
    )  # of the default server; other tests may leave servers
    assert re.search(told, found.words)
    assert found.level == ("ok" if path and path.endswith(".mounted") else found.level)
    assert found.level == "ok" or found.hint


async def mounted(scope, receive, send):
    from django_mcp.routing import mount

    await mount(forgot_to_mount)(scope, receive, send)


async def forgot_to_mount(scope, receive, send):
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b"<h1>Not Found</h1>"})


async def breaks(scope, receive, send):
    raise RuntimeError("broken")


@pytest.mark.parametrize(
    ("url_setting", "hosts", "level", "told"),
    [
        (None, ["shop.example"], "warning", "is not set"),
        ("https://shop.example", ["shop.example"], "ok", "The public origin is"),
        ("https://shop.example", [".example"], "ok", "The public origin is"),
        ("https://shop.example", ["other.example"], "problem", "is not in ALLOWED_HOSTS"),
        ("http://shop.example", ["shop.example"], "warning", "not https"),
        ("http://127.0.0.1:8000", ["127.0.0.1"], "ok", "The public origin is"),
    ],
)
def test_public_origin(settings, url_setting, hosts, level, told):
    settings.DJANGO_MCP = {"URL": url_setting} if url_setting else {}
    settings.ALLOWED_HOSTS = hosts
    (found,) = installation.address()
    assert found.level == level and told in found.words


def test_two_distributions_with_the_package_are_reported(monkeypatch):
    real = metadata.packages_distributions()
    both = real | {"django_mcp": ["django-modelcontext", "channels"]}
    monkeypatch.setattr(metadata, "packages_distributions", lambda: both)
    wrong = only_problem(installation.versions())
    assert "Several distributions own the package django_mcp" in wrong.words
    assert "django-modelcontext" in wrong.words and "Uninstall" in wrong.hint


def test_missing_asgi_server_is_reported(monkeypatch, settings):
    monkeypatch.setattr(installation, "SERVERS", ("no-such-distribution",))
    assert "No ASGI server is installed" in only_problem(installation.asgi_servers()).words
    monkeypatch.undo()
    settings.DEBUG = True
    assert "runserver uses WSGI" in only_problem(installation.asgi_servers()).words


@pytest.mark.django_db
def test_newer_migrations_are_reported(monkeypatch):
    real = MigrationRecorder.applied_migrations

    def newer(self):
        return real(self) | {("django_mcp", "9999_from_the_future"): None}

    monkeypatch.setattr(MigrationRecorder, "applied_migrations", newer)
    told = [one for one in databases.databases() if one.level == "warning"]
    assert told and all("newer version: 9999_from_the_future" in one.words for one in told)


@pytest.mark.django_db
def test_databases_of_these_tests_have_no_problems():
    assert not words(databases.databases(), "problem")


@pytest.mark.django_db  # some of Django's checks make queries
def test_messages_of_system_checks_are_reported_with_their_hints(settings):
    settings.DEBUG = True
    settings.DJANGO_MCP = {"URL": "https://shop.example", "NONSENSE": 1}
    (wrong,) = [one for one in installation.system_checks() if one.level == "problem"]
    assert "(django_mcp.E090) DJANGO_MCP has no key 'NONSENSE'." in wrong.words
    assert wrong.hint.startswith("There are: URL,") and "HINT" not in wrong.words
    settings.SILENCED_SYSTEM_CHECKS = ["django_mcp.E090"]
    assert not words(installation.system_checks(), "problem")


def test_exception_in_a_check_is_reported():
    def look():
        yield ok("before")
        raise RuntimeError("broken")

    before, broken = run_safely(look, "It")
    assert before == ok("before") and broken.level == "problem"
    assert broken.words == "It cannot be checked: RuntimeError: broken"


# In this process.


def test_number_of_tools_of_a_user_in_every_revision(server, alice):
    @server.tool
    def mine(request: mcp.Request) -> str:
        return "mine"

    (found,) = inside.list_tools(server, alice)
    assert found.words == f"Revisions {', '.join(REVISIONS)} work; alice gets 1 tool."
    (found,) = inside.list_tools(server, None)
    assert "a client without a token gets 0 tools" in found.words


@pytest.mark.django_db
def test_invalid_server_is_a_problem_and_empty_server_is_a_note(server):
    (found,) = inside.list_tools(server, None)
    assert found.level == "note" and "startmcp" in found.hint
    server._forget()

    @server.tool
    def wrong(request, argument): ...

    (found,) = inside.list_tools(server, None)
    assert found.level == "problem" and "cannot be served" in found.words


@pytest.mark.slow
def test_output_of_the_project_before_mcp_stdio_is_reported(tmp_path):
    (tmp_path / "noisy_settings.py").write_text(
        "from tests.spec.served.settings import *\nimport os; os.write(1, b'hello there\\n')\n"
    )
    prepare(tmp_path)
    found = django(
        tmp_path, "mcp_doctor",
        DJANGO_SETTINGS_MODULE="noisy_settings", PYTHONPATH=str(tmp_path),
    )  # fmt: skip
    assert "mcp_stdio does not answer as it should (exit code 0): hello there" in found.stdout
    assert found.returncode == 1


# Options.


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--server", "nonsense"], "there are: tests"),
        (["--user", "nobody"], "There is no user 'nobody'"),
        (["--token", "a b"], "letters, digits"),
        (["ftp://shop.example"], "such as https://"),
        (["shop.example/mcp"], "such as https://"),
        (["https://[x/mcp"], "such as https://"),
        (["https://shop.example/a b"], "such as https://"),
        (["https://me:secret@shop.example/mcp"], "Pass the token with --token"),
        (["https://shop.example/mcp?token=secret"], "Pass the token with --token"),
        (["--timeout", "0"], "--timeout"),
        (["--timeout", "nan"], "--timeout"),
    ],
)
@pytest.mark.django_db
def test_invalid_options_are_rejected(arguments, told):
    with pytest.raises(CommandError) as refused:
        call_command("mcp_doctor", *arguments)
    assert told in str(refused.value) and "secret" not in str(refused.value)


@pytest.mark.slow
def test_text_output(served, folder):
    done = django(folder, "mcp_doctor", url(served.port))
    assert done.returncode == 0 and "\x1b" not in done.stdout
    assert "\nOver HTTP: the address\n" in done.stdout and "\nThe database\n" in done.stdout
    assert "  ok       A session starts, answers and ends.\n" in done.stdout
    assert re.search(r"\n\n(No problems found|\d+ warnings?)\.\n\Z", done.stdout)
