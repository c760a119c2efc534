"""Many concurrent anonymous clients, with the shipped settings, systemd unit and nginx site."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from django_mcp.management.doctor.findings import (
    DISCOVER,
    INITIALIZE,
    json_headers,
    stateless_headers,
)

from .conftest import ADDRESSES
from .site import WORKERS

pytestmark = pytest.mark.slow
SITE = {"DJANGO_SETTINGS_MODULE": "tests.hosts.shop_settings"}
CLIENTS, ROUNDS = 40, 7
MAX_CONNECTIONS_PER_WORKER = 25  # the pool of the shipped settings, and two that listen and notify


def registration(name: str) -> bytes:
    redirects = ["http://127.0.0.1:33418/callback"]
    body = {"client_name": name, "redirect_uris": redirects, "token_endpoint_auth_method": "none"}
    return json.dumps(body).encode()


def requests(name: str) -> list[tuple[str, str, bytes | None, dict[str, str]]]:
    """Return the requests of an anonymous client: page, metadata, registration, sign-in, MCP."""
    return [
        ("GET", "/mcp", None, {"Accept": "text/html"}),
        ("GET", "/.well-known/oauth-authorization-server", None, {}),
        ("POST", "/oauth/register", registration(name), {"Content-Type": "application/json"}),
        ("GET", f"/oauth/authorize?response_type=code&client_id={name}", None, {}),
        ("GET", "/oauth/connections", None, {}),
        # A view of the project: it looks a session up, and keeps its connection if the settings do.
        ("GET", "/admin/", None, {"Cookie": f"sessionid={'b' * 32}"}),
        ("POST", "/mcp", DISCOVER, stateless_headers()),
        ("POST", "/mcp", INITIALIZE, json_headers()),
    ]


def run_client(site, number: int) -> Counter[tuple[str, str, int]]:
    """Run one client that sends its requests in order over one connection."""
    told: Counter[tuple[str, str, int]] = Counter()
    with site.hosts.inside("client"):
        connection = http.client.HTTPConnection(*site.at("front"), timeout=60)
        for turn in range(ROUNDS):
            for method, path, body, headers in requests(f"client-{number}-{turn}"):
                connection.request(method, path, body, {"Host": "shop.example", **headers})
                answer = connection.getresponse()
                answer.read()
                told[method, path.partition("?")[0], answer.status] += 1
        connection.close()
    return told


class OtherDatabaseUser(threading.Thread):
    """Another user of the same PostgreSQL, who connects repeatedly during the flood."""

    def __init__(self, site) -> None:
        super().__init__()
        self.site, self.over = site, threading.Event()
        self.refused: list[str] = []
        self.most = 0

    def run(self) -> None:
        with self.site.hosts.inside("client"):
            while not self.over.wait(0.02):
                try:
                    self.look()
                except psycopg.Error as error:
                    self.refused.append(str(error))

    def look(self) -> None:
        place = {"host": ADDRESSES["data"], "user": "other", "dbname": "postgres"}
        with psycopg.connect(**place) as connection:
            found = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE usename = 'shop'"
            ).fetchone()
        assert found is not None
        self.most = max(self.most, found[0])


@pytest.fixture
def shop(site):
    """The site of ``SITE``, migrated, with another PostgreSQL user."""
    site.manage("migrate", "-v0", **SITE)
    place = {"host": ADDRESSES["data"], "user": "shop", "dbname": "shop"}
    with psycopg.connect(**place, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS other")
        connection.execute("CREATE ROLE other LOGIN")
        connection.execute("GRANT pg_read_all_stats TO other")
    return site.begin(**SITE)


def test_forty_anonymous_clients_leave_database_connections_to_others(shop):
    neighbour = OtherDatabaseUser(shop)
    neighbour.start()
    with ThreadPoolExecutor(CLIENTS) as clients:
        told = sum(clients.map(lambda number: run_client(shop, number), range(CLIENTS)), Counter())
    neighbour.over.set()
    neighbour.join()
    assert sum(told.values()) == CLIENTS * ROUNDS * 8
    failed = {key: count for key, count in told.items() if key[2] >= 500}
    assert not failed, (failed, {name: shop.words(name)[-3000:] for name in WORKERS})
    assert neighbour.refused == []
    for name in WORKERS:  # threads of the pool neither keep a process alive nor complain at its end
        shop.end(name)
        assert "Traceback" not in shop.words(name) and "thread" not in shop.words(name)
    assert 0 < neighbour.most <= len(WORKERS) * MAX_CONNECTIONS_PER_WORKER
