"""System checks: each mistake has an id, a hint and a page of the documentation."""

import ast
import re
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest
from django.core import checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connections
from django.db.backends.postgresql.psycopg_any import IsolationLevel
from django.test import override_settings
from django.urls import path as route

import django_mcp
import django_mcp as mcp
from django_mcp.auth.principal import LookupVerifier, TokenVerifier
from django_mcp.checks import (
    check_declarations,
    check_deployment,
    check_session_database,
    check_settings,
    check_urls,
)
from django_mcp.conf import DEFAULTS
from django_mcp.storage import event_log

ROOT = Path(__file__).parent.parent
PACKAGE = Path(django_mcp.__file__).parent


@contextmanager
def around(request):
    yield


NOT_CALLABLE = 5


class Verifier:
    async def verify(self, token, server):
        return None


class Missing(TokenVerifier):
    async def verfy(self, token, server):
        return None


class Misnamed(Verifier):
    """``still_valid`` ends the sessions of a revoked token: without it, they go on."""

    audience = "shop"  # values of its own are its own business

    def still_valids(self, keys):
        return {}


class MisnamedValue(LookupVerifier):
    isuer = "https://id.example"

    def lookup(self, token, server):
        return None


class NotAsync:
    def verify(self, token, server):
        return None


class NeedsArguments(Verifier):
    def __init__(self, issuer):
        self.issuer = issuer


VERIFIER = NeedsArguments("https://id.example")


def found(given) -> list[str]:
    with override_settings(DJANGO_MCP=given):
        messages = check_settings()
    assert all(message.hint for message in messages)
    return [str(message.id).removeprefix("django_mcp.") for message in messages]


# Settings.


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Missing", "It has no method 'verify'. Did you mean 'verify' by 'verfy'?"),
        (
            "Misnamed",
            "Misnamed.still_valids has no effect on a token verifier. Did you mean 'still_valid'?",
        ),
        (
            "MisnamedValue",
            "MisnamedValue.isuer has no effect on a token verifier. Did you mean 'issuer'?",
        ),
    ],
)
def test_misspelled_attribute_of_a_verifier_is_an_error(name, words):
    with override_settings(DJANGO_MCP={"VERIFIERS": [f"tests.test_checks.{name}"]}):
        (message,) = check_settings()
    assert message.id == "django_mcp.E096" and words in message.msg


@pytest.mark.parametrize(
    "given",
    [
        None,
        {},
        {"URL": "https://shop.example"},
        {"URL": "http://localhost:8000"},
        {"URL": "https://shop.example/"},
        {"URL": "https://[::1]:8443"},
        {"AROUND": ["tests.test_checks.around"]},
        {"AROUND": ("tests.test_checks.around",)},
        {"THROTTLES": {"calls": "1/min", "log": None}},
        {"VERIFIERS": []},
        {"VERIFIERS": ["django_mcp.verifiers.PersonalAccessTokens", "tests.test_checks.Verifier"]},
        {"VERIFIERS": ["tests.test_checks.VERIFIER"]},
        {"QUESTION_TIMEOUT": 0.5, "PAGE_SIZE": 1},
        DEFAULTS,
    ],
)
def test_valid_settings_have_no_errors(given):
    assert found(given) == []


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ({"NONSENSE": 1}, "E090"),
        ({5: 1}, "E090"),
        ({"URL": "shop.example"}, "E091"),
        ({"URL": ""}, "E091"),
        ({"URL": "ftp://shop.example"}, "E091"),
        ({"URL": "https://"}, "E091"),
        ({"URL": "https://shop.example/mcp"}, "E091"),
        ({"URL": "https://shop.example?a=b"}, "E091"),
        ({"URL": "https://shop.example#a"}, "E091"),
        ({"URL": "https://[shop"}, "E091"),
        ({"URL": "https://shop.example:port"}, "E091"),
        ({"URL": "https://shop.example:0"}, "E091"),
        ({"AROUND": ["nowhere.at.all"]}, "E092"),
        ({"AROUND": ["tests.test_checks.nothing"]}, "E092"),
        ({"AROUND": ["nodots"]}, "E092"),
        ({"AROUND": ["tests.test_checks.NOT_CALLABLE"]}, "E092"),
        ({"AROUND": [around]}, "E092"),
        ({"VERIFIERS": ["nowhere.at.all"]}, "E096"),
        ({"VERIFIERS": ["tests.test_checks.nothing"]}, "E096"),
        ({"VERIFIERS": ["nodots"]}, "E096"),
        ({"VERIFIERS": [5]}, "E096"),
        ({"VERIFIERS": ["tests.test_checks.NOT_CALLABLE"]}, "E096"),
        ({"VERIFIERS": ["tests.test_checks.around"]}, "E096"),
        ({"VERIFIERS": ["tests.test_checks.NotAsync"]}, "E096"),
        ({"VERIFIERS": ["tests.test_checks.NeedsArguments"]}, "E096"),
        ({"VERIFIERS": ["tests.test_checks.Verifier", "tests.test_checks.NotAsync"]}, "E096"),
        ({"VERIFIERS": "tests.test_checks.Verifier"}, "E094"),
        ("nonsense", "E093"),
        ([("URL", "x")], "E093"),
        ({"URL": 5}, "E094"),
        ({"URL": None}, "E094"),
        ({"AROUND": "tests.test_checks.around"}, "E094"),
        ({"PAGE_SIZE": "100"}, "E094"),
        ({"PAGE_SIZE": 0}, "E094"),
        ({"PAGE_SIZE": -1}, "E094"),
        ({"THREADS": True}, "E094"),
        ({"THROTTLES": []}, "E094"),
        ({"APPROVALS": {"LIFETIME": 0}}, "E088"),
        ({"APPROVALS": {"WAIT": -1}}, "E088"),
        ({"APPROVALS": {"MAIL": "yes"}}, "E088"),
        ({"APPROVALS": {"mail": True}}, "E088"),
        ({"APPROVALS": {"QUERYSET": "tests.shop.approvals.missing"}}, "E088"),
        ({"APPROVALS": {"QUERYSET": ["tests.shop.approvals"]}}, "E088"),
        ({"THROTTLES": {"calls": "many"}}, "E095"),
        ({"THROTTLES": {"calls": "0/min"}}, "E095"),
        ({"THROTTLES": {"calls": "1/60"}}, "E095"),
        ({"THROTTLES": {"calls": 5}}, "E095"),
        ({"THROTTLES": {"calls": ["1/s"]}}, "E095"),
        ({"THROTTLES": {"nonsense": "1/s"}}, "E095"),
    ],
)
def test_invalid_setting_has_its_error_id(given, number):
    assert found(given) == [number]


def test_misspelled_setting_gets_a_suggestion():
    with override_settings(DJANGO_MCP={"PAGE_SIZ": 5, "ZZZ": 1}):
        near, far = check_settings()
    assert near.hint == "Did you mean 'PAGE_SIZE'?" and "There are: URL, AROUND" in far.hint


def test_all_mistakes_are_reported_together():
    assert found({"PAGE_SIZE": 0, "THREADS": 0, "NONSENSE": 1}) == ["E090", "E094", "E094"]
    assert found({"URL": "x", "AROUND": ["a.b"], "THROTTLES": {"x": "1/s"}}) == [
        "E091",
        "E092",
        "E095",
    ]


# The database of sessions.


@contextmanager
def database(alias: str, **options):
    """The log in a database of that alias, described so, in no way opened."""
    described = {**connections.settings["default"], "OPTIONS": {}, **options}
    before = connections.settings.copy()
    connections.settings[alias] = described
    kept = getattr(connections._connections, alias, None)
    connections[alias] = connections.create_connection(alias)
    try:
        with override_settings(DJANGO_MCP={"DATABASE": alias, "URL": "https://shop.example"}):
            yield
    finally:
        connections.settings.clear()
        connections.settings.update(before)
        del connections[alias]
        if kept is not None:
            connections[alias] = kept


def ids(messages) -> list[str]:
    assert all(message.hint for message in messages)
    return [str(message.id).removeprefix("django_mcp.") for message in messages]


ROUTERS = ["django_mcp.storage.router.StorageRouter"]


def test_database_of_the_test_settings_is_valid():
    assert check_session_database() == []


def test_unknown_database_is_an_error():
    with override_settings(DJANGO_MCP={"DATABASE": "nowhere"}):
        (message,) = check_session_database()
    assert ids([message]) == ["E097"] and "default" in message.hint


@pytest.mark.parametrize("given", ["nonsense", {"DATABASE": 5}, {"DATABASE": None}])
def test_mistake_of_another_check_is_not_reported_again(given):
    with override_settings(DJANGO_MCP=given):
        assert check_session_database() == check_deployment() == []


def test_default_database_needs_no_router():
    with override_settings(DJANGO_MCP={}, DATABASE_ROUTERS=[]):
        assert check_session_database() == []


def test_other_database_needs_a_router():
    with database("log"), override_settings(DATABASE_ROUTERS=[]):
        assert ids(check_session_database()) == ["E098"]
    with database("log"), override_settings(DATABASE_ROUTERS=ROUTERS):
        assert check_session_database() == []


class Nowhere:
    def allow_migrate(self, db, app_label, **hints):
        return False


def test_earlier_router_that_wins_is_an_error():
    with database("log"), override_settings(DATABASE_ROUTERS=[Nowhere(), *ROUTERS]):
        assert ids(check_session_database()) == ["E098"]


@pytest.mark.parametrize(
    ("vendor", "level"),
    [
        *(("mysql", level) for level in ("repeatable read", "SERIALIZABLE", None)),
        *(("postgresql", level) for level in IsolationLevel if level.name != "READ_COMMITTED"),
    ],
)
def test_other_isolation_levels_are_an_error(monkeypatch, vendor, level):
    options = {"isolation_level": level}
    with database("log", OPTIONS=options), override_settings(DATABASE_ROUTERS=ROUTERS):
        monkeypatch.setattr(connections["log"], "vendor", vendor)
        assert ids(check_session_database()) == ["E099"]


@pytest.mark.parametrize(
    ("vendor", "options"),
    [
        ("mysql", {}),
        ("mysql", {"isolation_level": "read committed"}),
        ("mysql", {"isolation_level": "READ COMMITTED"}),
        ("postgresql", {}),
        ("postgresql", {"isolation_level": None}),
        ("postgresql", {"isolation_level": IsolationLevel.READ_COMMITTED}),
        ("sqlite", {}),
    ],
)
def test_read_committed_is_accepted(monkeypatch, vendor, options):
    with database("log", OPTIONS=options), override_settings(DATABASE_ROUTERS=ROUTERS):
        monkeypatch.setattr(connections["log"], "vendor", vendor)
        assert check_session_database() == []


@pytest.mark.parametrize(
    ("alias", "engine", "name", "found"),
    [
        ("default", "sqlite3", "one", ["W100"]),
        ("log", "sqlite3", "shared", ["W100"]),
        ("log", "sqlite3", "own", []),
        ("default", "postgresql", "one", []),
        ("nowhere", "sqlite3", "one", []),
    ],
)
def test_sqlite_database_shared_by_two_aliases_is_a_warning(alias, engine, name, found):
    described = {"ENGINE": f"django.db.backends.{engine}", "NAME": Path(name)}
    shared = {"ENGINE": "django.db.backends.sqlite3", "NAME": "shared"}
    own = database("log" if alias == "nowhere" else alias, **described)
    with database("other", **shared), own, override_settings(DJANGO_MCP={"DATABASE": alias}):
        assert [one for one in ids(check_deployment()) if one == "W100"] == found


# Deployments.

SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": "own"}
POSTGRES = {"ENGINE": "django.db.backends.postgresql", "NAME": "x"}
MARIADB = {"ENGINE": "django.db.backends.mysql", "NAME": "x"}
KEPT = POSTGRES | {"CONN_MAX_AGE": 600, "CONN_HEALTH_CHECKS": True}
REDIS = {"default": {"BACKEND": "channels_redis.core.RedisChannelLayer"}}
MEMORY = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}


def pool(**options):
    return POSTGRES | {"OPTIONS": {"pool": options or True}}


@pytest.mark.parametrize(
    ("described", "layers", "more", "found"),
    [
        (KEPT, {}, {}, []),
        (KEPT, REDIS, {}, []),
        (KEPT, {"other": {}}, {}, []),
        (KEPT, MEMORY, {}, ["W160"]),
        (SQLITE, {}, {}, ["I161", "I162"]),
        (SQLITE, REDIS, {}, ["I161"]),
        (SQLITE, MEMORY, {}, ["I161", "W160"]),
        (POSTGRES | {"CONN_MAX_AGE": 0}, {}, {}, ["W163"]),
        (POSTGRES | {"CONN_MAX_AGE": 60, "CONN_HEALTH_CHECKS": False}, {}, {}, ["W164"]),
        (POSTGRES | {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": False}, {}, {}, ["W164"]),
        (pool(), {}, {}, ["W165"]),
        (pool(min_size=30), {}, {}, []),
        (pool(min_size=2, max_size=11), {}, {}, []),  # the log alone: the tools' is another
        (pool(min_size=2, max_size=10), {}, {}, ["W165"]),
        (KEPT, {}, {"ALLOWED_HOSTS": ["shop.example", "*"]}, ["W166"]),
    ],
)
def test_deployment_warnings_name_what_is_missing(described, layers, more, found):
    with database("log", **described), override_settings(CHANNEL_LAYERS=layers, **more):
        assert ids(check_deployment()) == found


@pytest.mark.parametrize(
    ("described", "found"),
    [
        (KEPT, ["W168"]),
        (KEPT | {"CONN_HEALTH_CHECKS": False}, ["W168"]),
        (POSTGRES | {"CONN_MAX_AGE": None}, ["W168"]),
        (POSTGRES, ["W163"]),
        (pool(max_size=24), []),
        (MARIADB, ["I162"]),
        (MARIADB | {"CONN_MAX_AGE": 600}, ["I162", "W168"]),
    ],
)
def test_persistent_connections_of_django_views_are_a_warning(described, found, monkeypatch):
    pymysql.install_as_MySQLdb()
    monkeypatch.setitem(event_log._packets, "default", 2**30)  # it is not asked
    with database("default", **described), override_settings(CHANNEL_LAYERS={}):
        told = check_deployment()
    assert ids(told) == found
    hints = [one.hint for one in told if one.id in ("django_mcp.W163", "django_mcp.W168")]
    wanted = described["ENGINE"].endswith("postgresql")
    assert all("CONN_MAX_AGE = 0" in hint for hint in hints)
    assert all(('OPTIONS["pool"]' in hint) is wanted for hint in hints)


def test_persistent_connections_of_any_view_database_are_a_warning():
    """Only the separate database of sessions may keep its connections."""
    pool_of_its_own = database("pooled", **pool(max_size=24))
    log, default = database("log", **KEPT), database("default", **POSTGRES)
    with log, default, database("replica", **KEPT), pool_of_its_own:
        given = {"DATABASE": "log", "URL": "https://shop.example"}
        with override_settings(CHANNEL_LAYERS={}, DJANGO_MCP=given):
            told = check_deployment()
    assert ids(told) == ["W168"] and "'replica'" in told[0].msg
    assert '"max_size": 21' in told[0].hint


@pytest.mark.parametrize(("size", "found"), [(20, ["W165"]), (21, [])])
def test_connection_pool_must_be_large_enough_for_the_threads(size, found):
    with database("default", **pool(max_size=size)), override_settings(CHANNEL_LAYERS={}):
        assert ids(check_deployment()) == found


@pytest.mark.parametrize(("keepalive", "found"), [(15, []), (60, ["W167"]), (90, ["W167"])])
def test_keepalive_longer_than_proxy_timeouts_is_a_warning(keepalive, found):
    with database("log", **KEPT), override_settings(CHANNEL_LAYERS={}):
        given = {"DATABASE": "log", "KEEPALIVE": keepalive, "URL": "https://shop.example"}
        with override_settings(DJANGO_MCP=given):
            assert ids(check_deployment()) == found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ["W169"]),
        ({"URL": "http://localhost"}, ["W169"]),
        ({"URL": "http://127.0.0.1:8000"}, ["W169"]),
        ({"URL": "https://[::1]"}, ["W169"]),
        ({"URL": "https://shop.example"}, []),
        ({"URL": "http://10.0.0.7"}, []),
        ({"URL": 5}, []),  # E094
    ],
)
def test_deployment_without_public_url_is_a_warning(given, found):
    settings = override_settings(DJANGO_MCP={"DATABASE": "log"} | given, CHANNEL_LAYERS={})
    with database("log", **KEPT), settings:
        assert ids(check_deployment()) == found


# Declarations.


def test_declaration_errors_of_every_server_are_reported(server):
    assert check_declarations() == []
    server.tool(name="not allowed")(lambda request: "x")
    (message,) = check_declarations()
    assert message.id == "django_mcp.E010"


# Of the project's own models too: since Django 6.1 it looks at every database.


def test_manage_check_reports_declarations_and_settings(server, db):
    server.tool(name="not allowed")(lambda request: "x")
    with override_settings(DJANGO_MCP={"NONSENSE": 1}), pytest.raises(SystemCheckError) as refused:
        call_command("check")
    assert "django_mcp.E010" in str(refused.value) and "django_mcp.E090" in str(refused.value)
    with pytest.raises(SystemCheckError):
        call_command("check", tags=["django_mcp"])


def test_warnings_do_not_fail_manage_check(server, db, capsys):
    @server.tool
    async def ask(request) -> str:
        return str(await request.aelicit("Sure?"))

    call_command("check")
    assert "django_mcp.W028" in capsys.readouterr().err
    assert {checks.WARNING} == {message.level for message in check_declarations()}


# Ids.


def emitted():
    """The number and the place of every message that the package can give, and the call itself."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (number := of_call(node)):
                yield number, f"{path.relative_to(PACKAGE)}:{node.lineno}", node


def of_call(node: ast.Call) -> str | None:
    """`Error(..., id="django_mcp.E001")`, `thing._error(message, 1, hint)`, `Problem` likewise."""
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    if isinstance(named.get("id"), ast.Constant):
        match = re.fullmatch(r"django_mcp\.([EWI]\d{3})", str(named["id"].value))
        return match and match[1]
    number = getattr(node.args[1], "value", None) if len(node.args) > 1 else None
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    is_error = called in ("_error", "Problem")
    return f"E{number:03}" if is_error and type(number) is int else None


def documented():
    """Return the rows of each table of the page."""
    page = (ROOT / "docs/reference/checks.md").read_text(encoding="utf-8")
    row = re.compile(r"^\| `django_mcp\.([EWI]\d{3})` \| (.+) \| (.+) \|$", re.M)
    return [row.findall(section) for section in page.split("\n## ")]


def test_every_message_has_a_unique_id():
    places: dict[str, list[str]] = {}
    for number, place, _ in emitted():
        places.setdefault(number, []).append(place)
    assert len(places) > 40
    assert {number: where for number, where in places.items() if len(where) > 1} == {}


def test_every_id_is_documented_with_a_remedy():
    tables = documented()
    for table in tables:
        assert table == sorted(table, key=lambda row: row[0][1:])
    rows = [row for table in tables for row in table]
    numbers = [number for number, _, _ in rows]
    assert len(numbers) == len(set(numbers))
    assert set(numbers) == {number for number, _, _ in emitted()}
    assert all(len(meaning) > 10 and len(remedy) > 5 for _, meaning, remedy in rows)


def test_every_message_has_a_hint():
    """Each call of `_error` passes a message, a number and a hint."""
    for _, place, node in emitted():
        assert "hint" in {keyword.arg for keyword in node.keywords} or len(node.args) > 2, place


def test_every_check_number_is_a_literal():
    """Otherwise the tests above would not find it."""
    for path in (PACKAGE / "declarations").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "_error":
                assert of_call(node), f"{path}:{node.lineno}"


@pytest.mark.django_db
def test_database_without_the_change_table_is_a_warning(monkeypatch):
    from django_mcp.checks import check_changes
    from django_mcp.storage import change_log

    assert check_changes(databases=["default"]) == check_changes() == []
    monkeypatch.setattr(change_log, "has_table", lambda alias: False)
    (warning,) = check_changes(databases=["default"])
    assert warning.id == "django_mcp.W145"
    assert "--database default django_mcp --fake 0001; then" in warning.hint
    monkeypatch.setattr(change_log, "aliases", set)
    assert check_changes(databases=["default"]) == []


# URLs.


def page(request):
    """A view of the project."""


class urls_at_a_server:
    urlpatterns = [route("mcp-here/", page), route("<path:rest>", page)]


class urls_beside_a_server:
    urlpatterns = [route("mcp-here/more/", page), route("<slug:name>/", page)]


@pytest.mark.parametrize(("urls", "found"), [(urls_at_a_server, 1), (urls_beside_a_server, 0)])
def test_view_at_the_path_of_a_server_is_a_warning(server, urls, found):
    server.path = "mcp-here"
    with override_settings(ROOT_URLCONF=urls):
        assert check_urls() == []  # the server has no declarations, so it is not served
        server.tool(lambda request: "", name="tool")
        messages = check_urls()
    assert [message.id for message in messages] == ["django_mcp.W101"] * found
    assert all(
        "test_checks.page at /mcp-here/" in message.msg and message.hint for message in messages
    )


def test_warning_about_a_hidden_view_contains_the_public_server_name(monkeypatch):
    monkeypatch.setattr(mcp.server, "_public_name", "bookshop")
    monkeypatch.setattr(mcp.server, "path", "mcp-here")
    with override_settings(ROOT_URLCONF=urls_at_a_server):
        (message,) = check_urls()
    assert "'bookshop'" in message.msg
    assert message.hint == "Move the view, or the server: mcp.server.path = ..."
