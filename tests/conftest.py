"""Fixtures that all tests share, and which of them are slow."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.db.backends.signals import connection_created
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.dispatch import receiver
from django.test.utils import CaptureQueriesContext
from hypothesis import settings as hypothesis

from django_mcp.auth import kill_switches
from django_mcp.calls import execution, throttling
from django_mcp.changes import receivers
from django_mcp.declarations import server as declared_servers
from django_mcp.declarations.server import Server
from django_mcp.protocol.revisions import REVISIONS
from django_mcp.runtime import outages, threads
from django_mcp.storage import streams
from django_mcp.storage.leases import lease
from django_mcp.testing.environment import TestEnvironment
from django_mcp.testing.peers import Peer

from . import kit
from .client import Client
from .http import HttpClient
from .storage.loops import Loop, a_loop
from .storage.rows import given

# No deadline: the duration of an example depends on how busy the machine is.
hypothesis.register_profile("django_mcp", deadline=None)
hypothesis.load_profile("django_mcp")
# A shell starts background jobs with SIGINT ignored, and the subprocesses of tests would inherit
# it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SIGNALS = (post_save, m2m_changed, post_delete)
# Tests count statements, so none may be executed at random.
streams.SIZE_CHECKED_ONE_IN = 10**9
DATABASE_FIXTURES = {"db", "transactional_db", "shared_db"}


TESTS = Path(__file__).parent
# Packages of slow tests: they start servers, browsers or other programs, or read all documentation.
SLOW = {
    TESTS / name
    for name in (
        "browser", "clients", "conformance", "docs", "example_project", "faults", "fields",
        "hosts", "mutations", "object_permissions", "restarts", "tenants", "tools",
    )
}  # fmt: skip

# Each module of these packages takes a minute or more.
LONGEST = {TESTS / name for name in ("hosts", "restarts", "security")}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave slow packages out of a quick run: importing them alone takes seconds."""
    quick = config.option.markexpr == "not slow"
    return (quick and collection_path in _slow_packages(config)) or None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Mark the tests of slow packages, and start the modules that take longest first.

    The run ends earlier if no worker starts a long module when all others have finished.
    """
    _give_all_databases(items)
    slow = _slow_packages(config)
    for item in items:
        if not slow.isdisjoint(item.path.parents):
            item.add_marker(pytest.mark.slow)
    yield
    items.sort(
        key=lambda item: (
            item.get_closest_marker("slow") is None,
            LONGEST.isdisjoint(item.path.parents),
        )
    )


def _slow_packages(config: pytest.Config) -> set[Path]:
    """Return the slow packages, without those that the command line names."""
    here = config.invocation_params.dir
    named = [Path(here, argument.split("::")[0]).resolve() for argument in config.args]
    return {
        package for package in SLOW if not any(package in (path, *path.parents) for path in named)
    }


def _give_all_databases(items: list[pytest.Item]) -> None:
    """Give tests that use a database access to all: the session database may be another one."""
    for item in items:
        marker = item.get_closest_marker("django_db")
        if marker or DATABASE_FIXTURES & set(getattr(item, "fixturenames", ())):
            options = {"databases": "__all__"} | (marker.kwargs if marker else {})
            item.add_marker(pytest.mark.django_db(**options), append=False)


@pytest.fixture(autouse=True)
def _jobs_on_test_connections(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run jobs on the connections of the test, inside its transaction."""
    throttling.forget()
    outages.forget()
    if not _in_transaction(request):
        with _no_kill_switches() if not _uses_database(request) else nullcontext():
            yield
        _end_heartbeat()
        _close_connections_of_ended_threads()
        return
    request.getfixturevalue("db")
    with TestEnvironment().installed():
        yield


@pytest.fixture(autouse=True)
def _restore_servers() -> Iterator[None]:
    """Remove the servers that a test registered, and the signal receivers of their models."""
    servers, version = dict(declared_servers._servers), declared_servers.version()
    connected = [list(signal.receivers) for signal in SIGNALS]
    connected_models = {model: set(signs) for model, signs in receivers._connected.items()}
    yield
    declared_servers._servers.clear()
    declared_servers._servers.update(servers)
    if declared_servers.version() != version:
        declared_servers._version += 1  # cached facts about models are outdated
        receivers._connected.clear()
        receivers._connected.update(connected_models)
        for signal, before in zip(SIGNALS, connected, strict=True):
            signal.receivers = before
            signal.sender_receivers_cache.clear()


@pytest.fixture(autouse=True)
def _clients_are_closed() -> Iterator[None]:
    """Fail a test that does not close a client of ``django_mcp.testing``.

    An open client records the queries of all calls, so asynchronous tools of later tests would use
    threads (``execution.around``).
    """
    around = execution.around  # a test may have replaced the attribute when this fixture ends
    before = list(around)
    yield
    assert around == before, "The test has not closed a client."


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the name of each function that is submitted to a thread pool."""
    hops: list[str] = []
    submit = ThreadPoolExecutor.submit

    def counted(self: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        hops.append(getattr(function, "__name__", repr(function)))
        return submit(self, function, *args, **kwargs)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counted)
    return hops


@pytest.fixture
def queries(db: None) -> Iterator[CaptureQueriesContext]:
    """Record the queries of the test's connection, on which all jobs run."""
    with CaptureQueriesContext(connection) as captured:
        yield captured


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    """Return an event loop that runs while the test waits."""
    with a_loop(monkeypatch) as made:
        yield made


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Return an event on which tools wait. It is set at the end of the test."""
    found = threading.Event()
    yield found
    found.set()


@pytest.fixture
def short_grace() -> Iterator[None]:
    """Shorten the time after which a call in a session is stored and gets a stream."""
    with given(JSON_GRACE=0.15):
        yield


def _end_heartbeat() -> None:
    """Stop the heartbeat thread, which the first stored call of a test starts."""
    if (thread := lease._thread) is not None:
        lease._ending.set()
        thread.join()
        lease.forget()


def _uses_database(request: pytest.FixtureRequest) -> bool:
    marker = request.node.get_closest_marker("django_db")
    return marker is not None or not DATABASE_FIXTURES.isdisjoint(request.fixturenames)


@contextmanager
def _no_kill_switches() -> Iterator[None]:
    """Let tools run in a test without a database, from which each call reads the kill switches."""
    # The same list is filled again: a test may have replaced the attribute, and ``monkeypatch``
    # may not have restored it yet.
    source = kill_switches.source
    functions = list(source)
    source.clear()
    yield
    source[:] = functions
    kill_switches.forget()


def _in_transaction(request: pytest.FixtureRequest) -> bool:
    """Whether the test uses a database inside one transaction."""
    marker = request.node.get_closest_marker("django_db")
    if "transactional_db" in request.fixturenames or (marker and marker.kwargs.get("transaction")):
        return False
    return marker is not None or "db" in request.fixturenames


@pytest.fixture
def shared_db(transactional_db: None, tmp_path: Any) -> Iterator[None]:
    """Provide a database that several threads can use at once, each with its own connections.

    SQLite in memory does not allow that, so the test gets a copy in a file.
    """
    if connection.vendor != "sqlite":
        yield
        return
    given, wrapper = connections.settings["default"], connections["default"]
    path = str(tmp_path / "db.sqlite3")
    wrapper.cursor().execute("VACUUM INTO %s", [path])
    connections.settings["default"] = {**given, "NAME": path}
    connections["default"] = connections.create_connection("default")
    _shut_down_pools()
    yield
    _shut_down_pools()
    connections["default"].close()
    connections.settings["default"], connections["default"] = given, wrapper


def _shut_down_pools() -> None:
    """Shut down all pools, because their threads have connections to the previous database."""
    for pool in threads.pools():
        pool.shutdown()


# Python 3.13 warns about an open connection of an ended thread when it is garbage-collected, which
# would be an error in whichever test runs then. So these connections are closed.

_opened: list[tuple[threading.Thread, Any]] = []


@receiver(connection_created)
def _note_thread(sender: Any, connection: Any, **kwargs: Any) -> None:
    thread = threading.current_thread()
    if thread is threading.main_thread():
        return
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        connection.connection.close()  # otherwise its end would be an error in another test
        raise AssertionError("No thread can close a database in memory: use shared_db.")
    _opened.append((thread, connection))


def _close_connections_of_ended_threads() -> None:
    """Close the connections of ended threads. Pools close those of their threads themselves."""
    for one in list(_opened):  # other threads may add to it meanwhile
        thread, left = one
        if not thread.is_alive():
            left.inc_thread_sharing()
            left.close()
            _opened.remove(one)


@pytest.fixture(scope="session", autouse=True)
def _validate_messages() -> Iterator[None]:
    """Validate all messages to clients of ``django_mcp.testing`` against the official schema."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Peer, "heard", kit.conforms)
        yield


# tests/protocol tests the changes of each revision. Other tests use the oldest revision, the newest
# one with sessions, and the newest one. `make test-all` uses all of them.
TESTED_REVISIONS = [*REVISIONS] if os.environ.get("TEST_EVERY_REVISION") else [
    "2024-11-05", "2025-11-25", "2026-07-28"
]  # fmt: skip


@pytest.fixture(params=TESTED_REVISIONS)
def revision(request: pytest.FixtureRequest) -> str:
    """Return the name of each tested revision."""
    return str(request.param)


@pytest.fixture(params=[name for name in TESTED_REVISIONS if REVISIONS[name].handshake])
def handshake(request: pytest.FixtureRequest) -> str:
    """Return the name of each tested revision with an ``initialize`` handshake."""
    return str(request.param)


@pytest.fixture
def server() -> Iterator[Server]:
    """Return an empty server, which is removed after the test."""
    made = Server("a test's own")
    yield made
    declared_servers._servers.pop("a test's own", None)


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    """Return a function that makes clients. They are closed after the test."""
    with ExitStack() as stack:

        def made(*args: Any, **options: Any) -> Client:
            return stack.enter_context(Client(*args, **options))

        yield made


@pytest.fixture
def http(db: None) -> Iterator[Callable[..., HttpClient]]:
    """Return a function that makes HTTP clients. They are closed after the test."""
    with ExitStack() as stack:

        def made(*args: Any, **options: Any) -> HttpClient:
            return stack.enter_context(HttpClient(*args, **options))

        yield made


@pytest.fixture
def alice(db: None) -> Any:
    """Return a user of the company Acme who may change invoices."""
    from django.contrib.auth.models import Permission, User

    from .shop.models import Company

    user = User.objects.create_user("alice", password="x")
    user.user_permissions.add(Permission.objects.get(codename="change_invoice"))
    Company.objects.get_or_create(name="Acme")[0].members.add(user)
    return User.objects.get(pk=user.pk)


@pytest.fixture
def bob(db: None) -> Any:
    """Return a user of another company."""
    from django.contrib.auth.models import User

    from .shop.models import Company

    user = User.objects.create_user("bob", password="x")
    Company.objects.create(name="Bolts").members.add(user)
    return user


@pytest.fixture
def invoice(alice: Any) -> Any:
    """Return an invoice of Acme."""
    from datetime import date
    from decimal import Decimal

    from .shop.models import Company, Customer, Invoice

    acme = Company.objects.get(name="Acme")
    customer = Customer.objects.create(company=acme, name="Carla", notes="never pays")
    return Invoice.objects.create(
        company=acme, customer=customer, number="A-1", total=Decimal("12.50"),
        issued=date(2026, 1, 2), status=Invoice.Status.OPEN,
    )  # fmt: skip
