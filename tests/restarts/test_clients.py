"""Clients that people let in: what ends in one process ends what is open at each worker.

How long it took is printed; that it was soon is the benchmark's to say (``benchmarks.revocation``).
"""

from __future__ import annotations

import time

import pytest

from .rights import all_kinds, alone, answered, listen, names, refusals, report, results

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
    """With an authorization server."""
    return {"OAUTH": "1"}


@pytest.fixture
def user(hand, request) -> str:
    name = f"{request.node.name} {time.time()}"[-100:]
    hand.person(name)
    return name


@pytest.fixture
def client(hand, user):
    """Makes clients that the person lets in: their tokens, by their names."""

    def made(name: str) -> str:
        return hand.do(
            "from tests.restarts import clients; "
            f"value = clients.connected(User.objects.get(username={user!r}), {name!r})"
        )[1]

    return made


@pytest.mark.parametrize("way", ENDS)
def test_a_client_that_may_no_longer_come_has_nothing_open_at_any_worker(
    hand, ports, user, client, connect, told, way
):
    mine, others = f"mine of {user}"[:100], f"other of {user}"[:100]
    token, another = client(mine), client(others)
    opened = all_kinds(ports, token, connect, told)
    beside = told(listen(ports[0], another))
    time.sleep(2)
    since, _ = hand.do(
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
        assert "guarded" in names(answered(alone(ports[1], another, "tools/list")))
