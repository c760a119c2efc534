"""Fixtures that all tests share, and which of them are slow."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.db.backends.signals import connection_created
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.dispatch import receiver
from django.test.utils import CaptureQueriesContext
from hypothesis import settings as hypothesis

from django_mcp.calls import rate_limits
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

# How long an example takes tells how busy the machine is.
hypothesis.register_profile("django_mcp", deadline=None)
hypothesis.load_profile("django_mcp")
# A shell starts what is in the background deaf to Ctrl-C, and so would be every process of a test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SIGNALS = (post_save, m2m_changed, post_delete)
# Tests count statements, and none is to be there by chance.
streams.SIZE_CHECKED_ONE_IN = 10**9
DATABASE_FIXTURES = {"db", "transactional_db", "shared_db"}


TESTS = Path(__file__).parent
# Their tests start servers, browsers or other programs, or read every page of the documentation.
SLOW = {
    TESTS / name
    for name in (
        "browser", "clients", "conformance", "docs", "example_project", "faults", "fields",
        "hosts", "mutations", "restarts", "tools",
    )
}  # fmt: skip


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave slow packages out of a quick run: importing them alone takes seconds."""
    quick = config.option.markexpr == "not slow"
    return (quick and collection_path in _slow_packages(config)) or None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Mark the tests of slow packages, and start slow tests first.

    The run ends earlier if no worker starts a long test when all others have finished.
    """
    _give_all_databases(items)
    slow = _slow_packages(config)
    for item in items:
        if not slow.isdisjoint(item.path.parents):
            item.add_marker(pytest.mark.slow)
    yield
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def _slow_packages(config: pytest.Config) -> set[Path]:
    """Return the slow packages, without those that the command line names."""
    here = config.invocation_params.dir
    named = [Path(here, argument.split("::")[0]).resolve() for argument in config.args]
    return {
        package for package in SLOW if not any(package in (path, *path.parents) for path in named)
    }


def _give_all_databases(items: list[pytest.Item]) -> None:
    """A test that has a database has all: the log of sessions may be in another."""
    for item in items:
        marker = item.get_closest_marker("django_db")
        if marker or DATABASE_FIXTURES & set(getattr(item, "fixturenames", ())):
            options = {"databases": "__all__"} | (marker.kwargs if marker else {})
            item.add_marker(pytest.mark.django_db(**options), append=False)


@pytest.fixture(autouse=True)
def _the_tests_connections(request: pytest.FixtureRequest) -> Iterator[None]:
    """Jobs run on the test's own connections, inside its transaction."""
    rate_limits.forget()
    outages.forget()
    if not _in_transaction(request):
        yield
        _end_heartbeat()
        _close_what_threads_left()
        return
    request.getfixturevalue("db")
    with TestEnvironment().installed():
        yield


@pytest.fixture(autouse=True)
def _the_projects_servers() -> Iterator[None]:
    """What a test registers is its own: no other finds its servers, or what they listen to."""
    servers, version = dict(declared_servers._servers), declared_servers.version()
    connected = [list(signal.receivers) for signal in SIGNALS]
    heard = {model: set(signs) for model, signs in receivers._connected.items()}
    yield
    declared_servers._servers.clear()
    declared_servers._servers.update(servers)
    if declared_servers.version() != version:
        declared_servers._version += 1  # what was known of the models is known no longer
        receivers._connected.clear()
        receivers._connected.update(heard)
        for signal, before in zip(SIGNALS, connected, strict=True):
            signal.receivers = before
            signal.sender_receivers_cache.clear()


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every hop to a thread of any pool, by the name of the function."""
    hops: list[str] = []
    submit = ThreadPoolExecutor.submit

    def counted(self: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        hops.append(getattr(function, "__name__", repr(function)))
        return submit(self, function, *args, **kwargs)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counted)
    return hops


@pytest.fixture
def queries(db: None) -> Iterator[CaptureQueriesContext]:
    """The queries of the test's connection, on which every job runs."""
    with CaptureQueriesContext(connection) as captured:
        yield captured


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    """An event loop that runs while the test waits."""
    with a_loop(monkeypatch) as made:
        yield made


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What tools wait for, in a thread or in the loop; open when the test is over."""
    found = threading.Event()
    yield found
    found.set()


@pytest.fixture
def short_grace() -> Iterator[None]:
    """Calls soon have a stream, and are written down."""
    with given(JSON_GRACE=0.15):
        yield


def _end_heartbeat() -> None:
    """It is begun by the first call that is written down, and would outlive the test."""
    if (thread := lease._thread) is not None:
        lease._ending.set()
        thread.join()
        lease.forget()


def _in_transaction(request: pytest.FixtureRequest) -> bool:
    """Whether the test has a database, within one transaction."""
    marker = request.node.get_closest_marker("django_db")
    if "transactional_db" in request.fixturenames or (marker and marker.kwargs.get("transaction")):
        return False
    return marker is not None or "db" in request.fixturenames


@pytest.fixture
def shared_db(transactional_db: None, tmp_path: Any) -> Iterator[None]:
    """A database that many threads may use at once, where none is adopted.

    SQLite's, in memory, is not: for the test it is a file.
    """
    if connection.vendor != "sqlite":
        yield
        return
    given, wrapper = connections.settings["default"], connections["default"]
    path = str(tmp_path / "db.sqlite3")
    wrapper.cursor().execute("VACUUM INTO %s", [path])
    connections.settings["default"] = {**given, "NAME": path}
    connections["default"] = connections.create_connection("default")
    _let_threads_go()
    yield
    _let_threads_go()
    connections["default"].close()
    connections.settings["default"], connections["default"] = given, wrapper


def _let_threads_go() -> None:
    """They have connections to what was the database before."""
    for pool in threads.all():
        pool.shutdown()


# An open connection of a thread that has ended is found when the garbage is collected: an error
# of Python 3.13's, in whatever test that is.

_opened: list[tuple[threading.Thread, Any]] = []


@receiver(connection_created)
def _note_thread(sender: Any, connection: Any, **kwargs: Any) -> None:
    thread = threading.current_thread()
    if thread is threading.main_thread():
        return
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        connection.connection.close()  # or its end would be an error of another test
        raise AssertionError("No thread can close a database in memory: use shared_db.")
    _opened.append((thread, connection))


def _close_what_threads_left() -> None:
    """Those of a pool keep their connections, and are let go with them."""
    for one in list(_opened):  # to which others may add meanwhile
        thread, left = one
        if not thread.is_alive():
            left.inc_thread_sharing()
            left.close()
            _opened.remove(one)


@pytest.fixture(scope="session", autouse=True)
def _the_kit_believes_nothing() -> Iterator[None]:
    """Its clients hold every message against the schema, as this project's own do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Peer, "heard", kit.conforms)
        yield


# The tests of tests/protocol try what each revision changed. Here the oldest, the newest that has
# sessions, and the newest are enough, and `make test-all` tries all.
TRIED = [*REVISIONS] if os.environ.get("TEST_EVERY_REVISION") else [
    "2024-11-05", "2025-11-25", "2026-07-28"
]  # fmt: skip


@pytest.fixture(params=TRIED)
def revision(request: pytest.FixtureRequest) -> str:
    """Each published revision."""
    return str(request.param)


@pytest.fixture(params=[name for name in TRIED if REVISIONS[name].handshake])
def handshake(request: pytest.FixtureRequest) -> str:
    """Each revision that begins by a handshake."""
    return str(request.param)


@pytest.fixture
def server() -> Iterator[Server]:
    """An empty server, forgotten after the test."""
    made = Server("a test's own")
    yield made
    declared_servers._servers.pop("a test's own", None)


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    """Makes clients, and closes them."""
    with ExitStack() as stack:

        def made(*args: Any, **options: Any) -> Client:
            return stack.enter_context(Client(*args, **options))

        yield made


@pytest.fixture
def http(db: None) -> Iterator[Callable[..., HttpClient]]:
    """Makes clients that come over HTTP, and closes them."""
    with ExitStack() as stack:

        def made(*args: Any, **options: Any) -> HttpClient:
            return stack.enter_context(HttpClient(*args, **options))

        yield made


@pytest.fixture
def alice(db: None) -> Any:
    """A user of the Acme company, who may change invoices."""
    from django.contrib.auth.models import Permission, User

    from .shop.models import Company

    user = User.objects.create_user("alice", password="x")
    user.user_permissions.add(Permission.objects.get(codename="change_invoice"))
    Company.objects.get_or_create(name="Acme")[0].members.add(user)
    return User.objects.get(pk=user.pk)


@pytest.fixture
def bob(db: None) -> Any:
    """A user of another company."""
    from django.contrib.auth.models import User

    from .shop.models import Company

    user = User.objects.create_user("bob", password="x")
    Company.objects.create(name="Bolts").members.add(user)
    return user


@pytest.fixture
def invoice(alice: Any) -> Any:
    """One of Acme's invoices."""
    from datetime import date
    from decimal import Decimal

    from .shop.models import Company, Customer, Invoice

    acme = Company.objects.get(name="Acme")
    customer = Customer.objects.create(company=acme, name="Carla", notes="never pays")
    return Invoice.objects.create(
        company=acme, customer=customer, number="A-1", total=Decimal("12.50"),
        issued=date(2026, 1, 2), status=Invoice.Status.OPEN,
    )  # fmt: skip
