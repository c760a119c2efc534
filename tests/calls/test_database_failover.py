"""Calls whose database connection breaks, as in a failover of PostgreSQL or MariaDB."""

from __future__ import annotations

import json
import logging
import re
import threading
from pathlib import Path

import pytest
from django.db import (
    DataError,
    InterfaceError,
    OperationalError,
    connection,
    connections,
    transaction,
)

import django_mcp as mcp
from django_mcp.calls import execution
from django_mcp.calls.errors import MASKED
from django_mcp.calls.execution import NOT_BEGUN, ROLLED_BACK, UNKNOWN
from django_mcp.calls.session_calls import call_manager
from django_mcp.models import Event
from django_mcp.runtime import outages, threads
from django_mcp.storage import jobs
from django_mcp.storage.leases import LeaseDoubtful
from tests.shop.models import Company

from ..database_proxy import Proxy
from ..storage.rows import given, together
from ..unreachable import unreachable
from .session_client import SessionClient, text

pytestmark = pytest.mark.usefixtures("real_threads")
PUBLIC = {"permission": mcp.PUBLIC}
PAGE = Path(__file__).parents[2] / "docs/explanation/guarantees.md"
networked = pytest.mark.skipif(
    connection.vendor == "sqlite", reason="No connection of SQLite's breaks: TEST_DATABASE."
)


@pytest.fixture
def proxy(monkeypatch):
    """Threads that connect from now on do it through it; the test's own connection stays."""
    connection.ensure_connection()
    given = connection.settings_dict
    made = Proxy((given["HOST"], int(given["PORT"])))
    monkeypatch.setitem(given, "HOST", "127.0.0.1")
    monkeypatch.setitem(given, "PORT", str(made.port))
    yield made
    made.refusals = 0
    for pool in threads.pools():
        pool.shutdown()
    made.close()


@pytest.fixture
def within():
    """What happens in each run of a tool, after it has written: one after the other."""
    return []


@pytest.fixture
def in_step():
    """What happens in each run of a step."""
    return []


@pytest.fixture
def server(server, runs, within, in_step):
    def work() -> str:
        runs.append("run")
        Company.objects.create(name=f"Run {len(runs)}")
        if within:
            within.pop(0)()
        return str(Company.objects.count())

    @server.tool(read_only=True, **PUBLIC)
    def read_only(request) -> str:
        """Read."""
        runs.append("run")
        Company.objects.exists()  # so that there is a connection to break
        if within:
            within.pop(0)()
        return str(Company.objects.count())

    @server.tool(idempotent=True, **PUBLIC)
    def idempotent(request) -> str:
        """Write what may be written twice."""
        return work()

    @server.tool(idempotent=True, **PUBLIC)
    def ask_again(request) -> str:
        """Write, and ask before it writes again."""
        if runs:
            request.elicit("Again?", bool)
        return work()

    class Transactional(mcp.Tool):
        """Do nothing but write to the database."""

        permission = mcp.PUBLIC
        transactional = True

        def handle(self, request) -> str:
            return work()

    @server.tool(**PUBLIC)
    def atomic(request) -> str:
        """Write in a transaction."""
        return work()

    @server.tool(atomic=False, **PUBLIC)
    def without(request) -> str:
        """Write without a transaction."""
        return work()

    @server.tool(**PUBLIC)
    def step(request) -> str:
        """Do a step, then write."""
        request.once("step", lambda: in_step.pop(0)() if in_step else "done")
        return work()

    @server.resource("runs://all", **PUBLIC)
    def resource(request) -> str:
        """Read."""
        runs.append("run")
        Company.objects.exists()  # so that there is a connection to break
        if within:
            within.pop(0)()
        return str(Company.objects.count())

    server.register(Transactional)
    return server


@pytest.fixture
def client(loop, server):
    return SessionClient(loop, server)


def broken(*args):
    """What happens where a database cannot be opened."""
    raise unreachable()


def break_now(proxy):
    """All connections break, and the next ones are refused."""
    proxy.refusals = 3
    proxy.break_all()


def break_at_commit(proxy, *, after):
    proxy.cut_after = after
    proxy.cut_at = lambda data: b"INSERT INTO" in data and b"shop_company" in data


WHILE_IT_RUNS = "the connection breaks while the tool runs"
BREAKS = {
    WHILE_IT_RUNS: lambda proxy, within: within.append(lambda: break_now(proxy)),
    "at a commit that succeeded": lambda proxy, within: break_at_commit(proxy, after=True),
    "at a commit that failed": lambda proxy, within: break_at_commit(proxy, after=False),
}
CALLS = {  # the first words of a row of the table, and which call it is about
    "a `read_only` tool": ("read_only", True),
    "an `idempotent` tool": ("idempotent", True),
    "a tool with `transactional = True`": ("transactional", True),
    "another tool that commits its outcome": ("atomic", True),
    "the same tool, answered by plain JSON": ("atomic", False),
    "a tool that ran a step": ("step", True),
    "any other tool": ("without", True),
    "no tool": (None, True),
}
ANSWERS = {
    (False, 1): "its response",
    (False, 2): "its response, of another run",
    ROLLED_BACK: "error: rolled back",
    UNKNOWN: "error: unknown",
}


def table() -> list[tuple[str, str, str]]:
    """Of the page: a call, when its database breaks, and what the client gets."""
    section = PAGE.read_text("utf-8").partition("## When a database breaks")[2]
    rows = [line.strip("| ").split(" | ") for line in re.findall(r"^\|.*\|$", section, re.M)]
    header, _, *calls = rows[: 2 + len(CALLS)]
    found = []
    for call, *cells in calls:
        (name,) = (name for name in CALLS if call.startswith(name))
        found += [(name, when, cell) for when, cell in zip(header[1:], cells, strict=True)]
    return [one for one in found if one[2] != "-"]


@networked
@pytest.mark.slow
@pytest.mark.parametrize(("call", "when", "answer"), table())
def test_call_through_a_failover_gets_the_documented_answer(
    client, proxy, within, runs, caplog, call, when, answer
):
    tool, is_written_down = CALLS[call]
    client.server.durable = is_written_down
    BREAKS[when](proxy, within)
    message = client.call(tool) if tool else client.message("resources/read", uri="runs://all")
    with given(JSON_GRACE=0.05 if is_written_down else 60):
        reply = client.post(message)
        client.loop.until(lambda: not (call_manager()._requests or call_manager()._tasks))
    away, *others = messages(caplog)
    assert away.startswith("Database cannot be reached: database=default ") and len(others) <= 1
    assert all("can be reached again" in one for one in others)
    (response,) = [one.response for one in reply.calls] if reply.stream is None else last(reply)
    if tool is None:
        assert response["result"]["contents"] and answer == ANSWERS[False, len(runs)]
        return
    is_error = bool(response["result"].get("isError"))
    assert ANSWERS[text(response) if is_error else (False, len(runs))] == answer
    saved = Company.objects.count()
    if not is_error and tool not in ("read_only", "idempotent"):
        assert saved == 1
    if "rolled back" in answer:
        assert saved == 0


@pytest.mark.slow
@pytest.mark.skipif(connection.vendor != "postgresql", reason="Django has a pool for PostgreSQL")
def test_safe_calls_run_again_where_connections_come_from_a_pool(
    client, proxy, within, runs, monkeypatch
):
    """A failover breaks all of its connections, also those that nobody uses at that moment."""
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"pool": {"min_size": 4}})
    try:
        with given(JSON_GRACE=60):
            client.post(client.call("read_only"))
            BREAKS[WHILE_IT_RUNS](proxy, within)
            (response,) = client.post(client.call("read_only")).responses
        assert text(response) == "0" and len(runs) == 3
    finally:
        together(lambda: connections["default"].close_pool())


@networked
@pytest.mark.slow
def test_call_may_ask_after_its_commit_failed(client, proxy, within, runs):
    """The first run was to be answered by plain JSON. To ask, the call needs a row."""
    break_at_commit(proxy, after=False)
    with given(JSON_GRACE=60):
        stream = client.open_stream(client.call("ask_again"))
    (question,) = stream.until(1)
    assert question["method"] == "elicitation/create" and len(runs) == 1
    client.answer(question, {"action": "accept", "content": {"answer": True}})
    assert text(stream.all()[-1]) == "1" and len(runs) == 2


def last(reply):
    texts = Event.objects.filter(stream=reply.stream).order_by("seq").values_list("data", flat=True)
    return [one for one in map(json.loads, texts) if "result" in one or "error" in one]


# What needs no server: a database that cannot be opened.


def test_call_that_has_not_begun_runs_when_the_database_is_back(client, runs, monkeypatch):
    away = [broken, broken]
    monkeypatch.setattr(
        "django_mcp.calls.execution.check", lambda *args: away.pop()() if away else None
    )
    (response,) = client.json_responses(client.call("without"))
    assert text(response) == "1" and runs == ["run"]


def test_call_that_began_before_does_not_say_that_nothing_was_done(
    client, runs, within, monkeypatch
):
    """The first run has written. The second one breaks before it calls the function."""
    monkeypatch.setattr(execution, "RETRY_SECONDS", 0.2)
    check = execution.check
    monkeypatch.setattr(
        "django_mcp.calls.execution.check", lambda *args: broken() if runs else check(*args)
    )
    within.append(broken)
    (response,) = client.json_responses(client.call("idempotent"))
    assert response["result"]["isError"] and text(response) == execution.HARMLESS
    assert runs == ["run"]


def test_call_ends_when_its_database_does_not_come_back(client, runs, monkeypatch):
    monkeypatch.setattr(execution, "RETRY_SECONDS", 0.2)
    monkeypatch.setattr("django_mcp.calls.execution.check", broken)
    (response,) = client.json_responses(client.call("without"))
    assert response["result"]["isError"] and text(response) == NOT_BEGUN and runs == []


def test_statement_that_crashes_the_database_runs_a_limited_number_of_times(client, runs, within):
    within += [broken] * 10
    (response,) = client.json_responses(client.call("read_only"))
    assert response["result"]["isError"] and len(runs) == 1 + execution.MAX_RERUNS


def test_safe_call_without_a_session_runs_again(connect, revision, server, runs, within):
    within.append(broken)
    assert connect(server=server, revision=revision).text("read_only") == "0"
    assert len(runs) == 2


def test_listen_is_not_acknowledged_twice(connect, server, runs, monkeypatch):
    def visible(*args):
        runs.append("look")
        broken()

    monkeypatch.setattr("django_mcp.calls.methods.visible", visible)
    client = connect(server=server, revision="2026-07-28")
    wanted = {"resourceSubscriptions": ["runs://all"]}
    id = client.start("subscriptions/listen", notifications=wanted)
    assert "may be tried again" in client.wait(id)["error"]["message"] and runs == ["look"]


def test_deadlock_is_not_treated_as_a_break(client, runs, within):
    def locked():
        raise OperationalError("database is locked") from locked_error()

    within.append(locked)
    (response,) = client.json_responses(client.call("read_only"))
    assert response["result"]["isError"] and runs == ["run"]


def locked_error():
    error = Exception()
    error.sqlite_errorname = "SQLITE_BUSY"
    return error


# What a tool itself does wrong: the database lives.


def raise_by_project():
    raise InterfaceError("the cursor is closed")


def raise_from_unknown_database():
    """The project has a driver of its own, and raises what Django would."""
    away = Exception("terminating connection due to administrator command")
    away.sqlstate = "57P01"
    raise OperationalError("The archive is away") from away


def use_driver_wrongly():
    with connection.wrap_database_errors:
        raise connection.Database.OperationalError("the cursor is closed")


def use_closed_cursor():
    with connection.cursor() as cursor:
        pass
    cursor.execute("SELECT 1")


def use_cursor_of_closed_connection():
    cursor = connection.cursor()
    connection.close()
    cursor.execute("SELECT 1")


def use_closed_connection_in_transaction():
    with transaction.atomic():
        connection.close()
        Company.objects.exists()


def use_driver_wrongly_in_failed_transaction():
    with transaction.atomic():
        Company.objects.create(name="Before")
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1/0")  # PostgreSQL takes no statement after this
        except DataError:
            pass
        use_driver_wrongly()


def use_closed_cursor_in_thread():
    caught = []

    def work():
        try:
            use_cursor_of_closed_connection()
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    raise caught[0]


def raise_from_wrong_use():
    try:
        use_driver_wrongly()
    except OperationalError as error:
        raise RuntimeError("No companies") from error


BUGS = [
    raise_by_project,
    raise_from_unknown_database,
    use_driver_wrongly,
    use_closed_cursor,
    use_cursor_of_closed_connection,
    use_closed_connection_in_transaction,
    use_driver_wrongly_in_failed_transaction,
    use_closed_cursor_in_thread,
    raise_from_wrong_use,
]


@pytest.mark.parametrize("tool", ["read_only", "transactional", "without"])
@pytest.mark.parametrize("bug", BUGS)
def test_bug_of_tool_that_looks_like_a_break_is_logged_and_not_run_again(
    client, runs, within, caplog, tool, bug
):
    within.append(bug)
    (response,) = client.json_responses(client.call(tool))
    assert response["result"]["isError"] and text(response) == MASKED and runs == ["run"]
    (record,) = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert record.exc_info and "cannot be reached" not in caplog.text


def test_bug_in_a_step_that_looks_like_a_break_is_logged(client, in_step, caplog):
    in_step.append(use_driver_wrongly)
    (response,) = client.open_stream(client.call("step")).all()
    assert text(response) == MASKED and "cannot be reached" not in caplog.text


@networked
@pytest.mark.slow
@pytest.mark.parametrize("tool", ["read_only", "transactional", "without"])
def test_connection_that_broke_unnoticed_is_a_break(client, runs, within, caplog, tool):
    def fail():
        driver = connection.connection
        getattr(driver, "_force_close", driver.close)()  # PyMySQL's own, of a connection that broke
        Company.objects.exists()

    within.append(fail)
    (response,) = client.json_responses(client.call(tool))
    if tool == "without":
        assert text(response) == UNKNOWN and len(runs) == 1
    else:
        assert not response["result"].get("isError") and len(runs) == 2
    assert "cannot be reached" in caplog.text


@networked
@pytest.mark.slow
def test_break_is_recognized_although_the_tool_closes_its_connection(
    client, proxy, runs, within, caplog
):
    def fail():
        break_now(proxy)
        try:
            Company.objects.exists()
        except (InterfaceError, OperationalError):
            connection.close()
            raise

    within.append(fail)
    (response,) = client.json_responses(client.call("read_only"))
    assert not response["result"].get("isError") and len(runs) == 2


def test_call_whose_error_was_raised_from_a_break_runs_again(client, runs, within, caplog):
    def wrapped():
        raise RuntimeError("No companies") from unreachable()

    within.append(wrapped)
    (response,) = client.json_responses(client.call("read_only"))
    assert text(response) == "0" and len(runs) == 2
    assert not any(one.exc_info for one in caplog.records)


def test_tool_error_raised_from_a_break_is_the_answer(client, runs, within):
    def said():
        raise mcp.ToolError("Try tomorrow.") from unreachable()

    within.append(said)
    (response,) = client.json_responses(client.call("read_only"))
    assert text(response) == "Try tomorrow." and len(runs) == 1


def test_error_that_is_its_own_cause_is_not_a_break():
    error = RuntimeError("again")
    error.__cause__ = error
    assert jobs.break_behind(error) is None


# What is logged.


def messages(caplog) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_break_is_logged_once_without_traceback_and_so_is_the_return(
    client, within, monkeypatch, caplog
):
    within += [broken, broken]
    monkeypatch.setattr(outages, "SETTLED_SECONDS", 60.0)
    client.json_responses(client.call("read_only"))
    monkeypatch.setattr(outages, "SETTLED_SECONDS", 0.0)
    client.json_responses(client.call("read_only"))
    away, back = messages(caplog)
    assert away == (
        "Database cannot be reached: database=default error=unable to open database file"
    )
    assert re.fullmatch(r"Database can be reached again: database=default outage=\d+\.\ds", back)
    assert not any(one.exc_info for one in caplog.records)


@pytest.mark.parametrize("tell", ["exception", "argument"])
def test_log_message_about_an_unreachable_database_is_logged_once(caplog, tell):
    """Each request would log the same message with a traceback."""
    for _ in range(3):
        try:
            broken()
        except OperationalError as error:
            if tell == "exception":
                jobs.logger.exception("A look at the log failed")
            else:
                jobs.logger.warning("Changes cannot be read: %s", error)
    assert len(messages(caplog)) == 1 and "cannot be reached" in caplog.text


def test_break_while_a_connection_is_set_up_is_recognized(monkeypatch):
    """MariaDB sets autocommit by a statement, before Django says that there is a connection."""

    def fail(wrapper, autocommit):
        with wrapper.wrap_database_errors:
            raise wrapper.Database.OperationalError("Lost connection during query")

    monkeypatch.setattr(type(connections["default"]), "_set_autocommit", fail)
    with pytest.raises(OperationalError) as caught:
        together(lambda: connections["default"].ensure_connection())
    assert jobs.is_break(caught.value)


def test_doubtful_lease_is_not_treated_as_a_break():
    assert not jobs.is_break(LeaseDoubtful(LeaseDoubtful.__doc__)) and jobs.is_break(unreachable())


def test_other_errors_keep_their_traceback(caplog):
    try:
        raise OperationalError("no such table") from locked_error()
    except OperationalError:
        jobs.logger.exception("A look at the log failed")
    (record,) = caplog.records
    assert record.exc_info and "no such table" in caplog.text


@networked
@pytest.mark.slow
def test_message_names_the_alias_of_the_database_that_broke(proxy, caplog):
    proxy.refusals = 1
    with pytest.raises(OperationalError) as caught:
        together(lambda: connections["default"].ensure_connection())
    assert outages.alias_of(caught.value) == "default"


def test_each_thread_tests_its_connections_once_after_a_break(shared_db):
    outages.are_doubtful()
    outages.note_break(OperationalError("gone"))
    assert outages.are_doubtful() and not outages.are_doubtful()
