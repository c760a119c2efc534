"""What every test shares."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connection, connections
from django.db.backends.signals import connection_created
from django.db.models.signals import post_delete
from django.dispatch import receiver
from hypothesis import settings as hypothesis

from django_mcp import receivers, threads
from django_mcp.declare import servers as declared_servers
from django_mcp.declare.servers import Server
from django_mcp.delivery.leases import lease
from django_mcp.dispatch import limits
from django_mcp.protocol.revisions import REVISIONS
from django_mcp.receivers import OF_ROWS
from django_mcp.testing.peers import Peer

from . import kit
from .client import Client
from .delivery.rows import given
from .http import HttpClient

# How long an example takes tells how busy the machine is.
hypothesis.register_profile("django_mcp", deadline=None)
hypothesis.load_profile("django_mcp")
# A shell starts what is in the background deaf to Ctrl-C, and so would be every process of a test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

DATABASE_FIXTURES = {"db", "transactional_db", "shared_db"}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """What is slow begins first: nothing is waited for alone in the end."""
    _give_all_databases(items)
    yield
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def _give_all_databases(items: list[pytest.Item]) -> None:
    """A test that has a database has all: the log of sessions may be in another."""
    for item in items:
        marker = item.get_closest_marker("django_db")
        if marker or DATABASE_FIXTURES & set(getattr(item, "fixturenames", ())):
            options = {"databases": "__all__"} | (marker.kwargs if marker else {})
            item.add_marker(pytest.mark.django_db(**options), append=False)


HANDSHAKES = [name for name, revision in REVISIONS.items() if revision.handshake]


@pytest.fixture(autouse=True)
def _the_tests_connections(request: pytest.FixtureRequest) -> Iterator[None]:
    """Jobs run on the test's own connections, inside its transaction."""
    limits.forget()
    if not _in_transaction(request):
        yield
        _end_heartbeat()
        _close_what_threads_left()
        return
    request.getfixturevalue("db")
    with threads.adopt():
        yield


@pytest.fixture(autouse=True)
def _the_projects_servers() -> Iterator[None]:
    """What a test registers is its own: no other finds its servers, or what they listen to."""
    servers, version = dict(declared_servers._servers), declared_servers.version()
    heard = _heard_of_rows()
    yield
    declared_servers._servers.clear()
    declared_servers._servers.update(servers)
    if declared_servers.version() != version:
        declared_servers._version += 1  # what was known of the models is known no longer
    for model in _heard_of_rows() - heard:
        receivers._heard[model].difference_update(OF_ROWS)
        post_delete.disconnect(sender=model, dispatch_uid="django_mcp.saves.saved")


def _heard_of_rows() -> set[type[Any]]:
    return {model for model, signs in receivers._heard.items() if signs.issuperset(OF_ROWS)}


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
    for pool in (*threads.POOLS, threads.changes, threads.interests, threads.notes):
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


@pytest.fixture(params=REVISIONS)
def revision(request: pytest.FixtureRequest) -> str:
    """Each published revision."""
    return str(request.param)


@pytest.fixture(params=HANDSHAKES)
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
