"""Revocation of OAuth clients: streams and calls end at each worker.

The delays are printed; their limits are measured by ``benchmarks.revocation``.
"""

from __future__ import annotations

import time

import pytest

from .revocation import (
    listen,
    open_all_kinds,
    refusals,
    report,
    response_of,
    results,
    stateless_request,
    tool_names,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
WORKERS = 3
ENDS = {
    "the client revokes its token": "clients.revoke({client!r}, {token!r})",
    "its user disconnects it": "clients.disconnect({client!r}, user)",
    "its tokens are revoked in the admin": "clients.in_the_admin({client!r}, 'revoke')",
    "it is blocked in the admin": "clients.in_the_admin({client!r}, 'block')",
    "another password": "user.set_password('another'); user.save()",
}
EVERY_CLIENT = {"another password"}


@pytest.fixture(scope="module")
def project() -> dict[str, str]:
    """Run the project with an authorization server."""
    return {"OAUTH": "1"}


@pytest.fixture
def user(shell, request) -> str:
    name = f"{request.node.name} {time.time()}"[-100:]
    shell.person(name)
    return name


@pytest.fixture
def client(shell, user):
    """Create clients that the user has authorized, and return their tokens."""

    def made(name: str) -> str:
        return shell.do(
            "from tests.restarts import clients; "
            f"value = clients.connected(User.objects.get(username={user!r}), {name!r})"
        )[1]

    return made


@pytest.mark.parametrize("way", ENDS)
def test_revoked_client_has_no_open_streams_or_calls_at_any_worker(
    shell, ports, user, client, connect, record, way
):
    mine, others = f"mine of {user}"[:100], f"other of {user}"[:100]
    token, another = client(mine), client(others)
    opened = open_all_kinds(ports, token, connect, record)
    beside = record(listen(ports[0], another))
    time.sleep(2)
    since, _ = shell.do(
        f"from tests.restarts import clients; user = User.objects.get(username={user!r}); "
        + ENDS[way].format(client=mine, token=token)
    )
    report(way, since, {where: one.end() for where, one in opened.items()})
    assert not results(opened)
    assert refusals(ports, token) == [401] * WORKERS
    if way in EVERY_CLIENT:
        beside.end()
        assert refusals(ports, another) == [401] * WORKERS
    else:
        assert beside.ended is None
        assert "guarded" in tool_names(
            response_of(stateless_request(ports[1], another, "tools/list"))
        )
