"""Limits count by the client's real address behind the nginx site of the guide."""

from __future__ import annotations

import http.client
import json
import random

import pytest

SHOP = {"DJANGO_SETTINGS_MODULE": "tests.hosts.shop_settings"}
FRONT, FRONT6 = "10.0.0.2", "fd00::2"
CLIENT, NEIGHBOUR = "10.0.0.3", "10.0.0.4"
SUBNETS = [f"fd00:0:1:{subnet}::3" for subnet in range(1, 7)]  # of one /48
OTHER_SITE = "fd00:0:2:1::3"
UNTRUSTED = {"FORWARDED_ALLOW_IPS": "127.0.0.1"}  # the default of uvicorn
VISIT = ["mcp_doctor", f"http://{FRONT}/mcp", "--format", "json"]
HEADER = "proxy_set_header X-Forwarded-For $remote_addr;"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def addresses(hosts):
    hosts.also("front", FRONT6)
    hosts.also("client", NEIGHBOUR, "fd00::3", *SUBNETS, OTHER_SITE)


def register(source: str, number: int, at: str = FRONT) -> int:
    """Return the status of a registration with forged forwarding headers."""
    claimed = f"198.51.100.{random.randrange(256)}"
    headers = {
        "Host": "shop.example", "Content-Type": "application/json", "X-Real-IP": claimed,
        "X-Forwarded-For": claimed, "Forwarded": f"for={claimed}",
    }  # fmt: skip
    body = {
        "client_name": f"{source} {number}", "redirect_uris": ["http://127.0.0.1:33418/callback"],
        "token_endpoint_auth_method": "none",
    }  # fmt: skip
    connection = http.client.HTTPConnection(at, 80, timeout=20, source_address=(source, 0))
    connection.request("POST", "/oauth/register", json.dumps(body), headers)
    status = connection.getresponse().status
    connection.close()
    return status


def doctor_findings(site) -> dict[str, str]:
    """Return the level by text of what mcp_doctor reports at both endpoints."""
    found = json.loads(site.manage(*VISIT, fails=True, **SHOP))["findings"]
    return {one["words"]: one["level"] for one in found if "client addresses" in one["part"]}


def test_registrations_are_limited_by_the_real_client_address(site):
    site.manage("migrate", "-v0", **SHOP)
    site.manage("shell", "-c", FORGET, **SHOP)
    site.begin(REGISTRATION_RATE="2/3600", **SHOP)
    assert [register(CLIENT, n) for n in range(4)] == [201, 201, 429, 429]
    assert [register(NEIGHBOUR, n) for n in range(3)] == [201, 201, 429]
    # IPv6: two for each /64, eight for all of a /48.
    assert [register(SUBNETS[0], n, FRONT6) for n in range(3)] == [201, 201, 429]
    statuses = [register(source, n, FRONT6) for source in SUBNETS[1:] for n in range(2)]
    assert statuses == [201] * 6 + [429] * 4
    assert register(OTHER_SITE, 0, FRONT6) == 201
    assert doctor_findings(site) == {
        f"The MCP endpoint sees the client's address, {CLIENT}.": "ok",
        f"The registration endpoint sees the client's address, {CLIENT}.": "ok",
    }


def test_wsgi_site_and_mcp_endpoint_see_the_client_address(site):
    site.manage("migrate", "-v0", **SHOP)
    site.begin_beside_wsgi(**SHOP)
    assert site.status("front", "/admin/login/") == 200
    found = json.loads(site.manage(*VISIT, fails=True, **SHOP))["findings"]
    told = {one["words"]: one["level"] for one in found}
    for endpoint in ("MCP", "registration"):
        assert told[f"The {endpoint} endpoint sees the client's address, {CLIENT}."] == "ok"
    assert told["A session starts, answers and ends."] == "ok"


FORGET = "from django_mcp.oauth.models import ClientProfile; ClientProfile.objects.all().delete()"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"nginx_without": HEADER}, "believes any client that sends X-Forwarded-For"),
        (UNTRUSTED, f"sees the proxy's address, {FRONT}, for every client"),
        ({"nginx_without": HEADER} | UNTRUSTED, f"sees the address {FRONT} for every client"),
    ],
    ids=["header passed on", "proxy not trusted", "neither"],
)
def test_doctor_reports_a_proxy_that_hides_client_addresses(site, more, told):
    site.manage("migrate", "-v0", **SHOP)
    found = doctor_findings(site.begin(**more, **SHOP))
    assert set(found.values()) == {"problem"} and len(found) == 2
    assert all(told in words for words in found)
