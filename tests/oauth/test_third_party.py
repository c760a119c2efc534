"""People sign in elsewhere: the page's recipe, over real HTTP, from the client to the provider.

The official client, django-allauth in a server of its own, and OpenID providers. Which of the
accounts of ``company`` and ``other`` have the same name are different people.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.shared.auth import OAuthToken

from tests.http import BOTH

from .agent import Agent
from .test_end_to_end import bare, refused
from .third.people import Guest, ThirdSite
from .third.provider import Provider

pytestmark = pytest.mark.slow

USER = "from django.contrib.auth.models import User; user = User.objects.get(username={name!r});"
ACCOUNTS = "from allauth.socialaccount.models import SocialAccount;"
CONNECT = USER + ACCOUNTS + "SocialAccount.objects.create(user=user, provider={at!r}, uid={uid!r})"
DISCONNECT = ACCOUNTS + "SocialAccount.objects.get(provider={at!r}, uid={uid!r}).delete()"
KEEP_TOKEN = "from allauth.socialaccount.models import SocialToken; SocialToken.objects.update({})"
AGED = """
from datetime import timedelta
from django.utils import timezone
from django_mcp.oauth.models import TokenBinding
print(TokenBinding.objects.update(checked=timezone.now() - timedelta(seconds={seconds})))
"""
DUE, LATE = 301, 901  # seconds: those of the page, and one more
STARTED = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {},
               "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def company():
    with Provider("company") as found:
        yield found


@pytest.fixture(scope="module")
def other():
    with Provider("other") as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory, company, other):
    made = ThirdSite(tmp_path_factory.mktemp("third"), company, other)
    with made.serve():
        yield made


@pytest.fixture(autouse=True)
def in_order(company, other):
    yield
    for provider in (company, other):
        provider.broken = False


async def connected(site: ThirdSite, guest: Guest) -> Agent:
    """A client that got in by somebody."""
    agent = Agent(site.endpoint, guest.sent)
    assert await agent.whoami() == f"{guest.name}-{guest.at}"
    return agent


def age(site: ThirdSite, seconds: float) -> None:
    """So long ago somebody asked for what is known of accounts."""
    assert int(site.run(AGED.format(seconds=seconds))) > 0


async def enters(site: ThirdSite, agent: Agent) -> int:
    """The status by which the endpoint answers the token that a client has."""
    status = (await bare(site, agent.memory.tokens.access_token)).status_code
    return 200 if status == 400 else status  # the request itself says nothing


async def refreshed(agent: Agent) -> Any:
    """What the token endpoint answers the refresh token that a client has."""
    context = agent.provider.context
    form = {"grant_type": "refresh_token", "refresh_token": agent.memory.tokens.refresh_token,
            "client_id": agent.memory.client.client_id, "resource": agent.endpoint}  # fmt: skip
    form, headers = context.prepare_token_auth(form, {})
    async with httpx2.AsyncClient(timeout=60) as web:
        answered = await web.post(
            str(context.oauth_metadata.token_endpoint), data=form, headers=headers
        )
    if answered.status_code == 200:
        agent.memory.tokens = OAuthToken.model_validate(answered.json())
    return answered


@pytest.mark.parametrize(
    ("name", "id"),
    [("SOCIALACCOUNT_EMAIL_AUTHENTICATION", "W044"), ("SOCIALACCOUNT_LOGIN_ON_GET", "W045")],
)
def test_what_signs_in_somebody_else_is_warned_of(site, name, id):
    told = site.manage("check", **{name: True})
    assert f"(django_mcp_oauth.{id}) {name} is on" in told and told.count("django_mcp_oauth.") == 1


async def test_who_signs_in_elsewhere_is_asked_here(site, company):
    guest = Guest("ann")
    agent = await connected(site, guest)
    assert guest.signed_in == 1 and len(guest.read) == 1
    assert "Signed in as ann-company" in guest.read[0] and "Agent Smith" in guest.read[0]
    asked = company.queries[-1]
    assert asked["state"] and asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"].startswith(f"{site.origin}/accounts/oidc/company/")
    assert set(agent.told[0]) == {"code", "state", "iss"} and agent.told[0]["iss"] == site.origin


async def test_no_token_goes_from_one_side_to_the_other(site, company):
    agent = await connected(site, Guest("bea"))
    age(site, DUE)
    assert await enters(site, agent) == 200 == (await refreshed(agent)).status_code
    tokens = agent.memory.tokens
    ours = [tokens.access_token, tokens.refresh_token, agent.told[0]["code"]]
    assert company.given and not set(ours) & set(company.given)
    assert not [one for one in ours for said in company.received if one in said]
    kept = b"".join(file.read_bytes() for file in site.folder.glob("db.sqlite3*"))
    assert not [one for one in ours[:2] if one.encode() in kept]


async def test_a_token_of_the_provider_opens_nothing(site, company):
    await connected(site, Guest("cid"))
    theirs = [token for token, sub in company.access.items() if sub == "cid"]
    assert theirs and [(await bare(site, token)).status_code for token in theirs] == [401]


async def test_another_client_is_another_question_though_nobody_signs_in_again(site, company):
    guest = Guest("dan")
    await connected(site, guest)
    sent = company.asked["/authorize"]
    await connected(site, guest)
    assert len(guest.read) == 2 and guest.signed_in == 1
    assert company.asked["/authorize"] == sent
    guest.allow = False
    agent = Agent(site.endpoint, guest.sent)
    await refused(agent)
    assert agent.told[0]["error"] == "access_denied" and agent.memory.tokens is None


async def test_who_would_not_after_signing_in_lets_nobody_in(site):
    agent = Agent(site.endpoint, Guest("eve", allow=False).sent)
    await refused(agent)
    assert agent.told[0]["error"] == "access_denied" and agent.memory.tokens is None


@pytest.mark.parametrize("query", ["code=stolen", "code=stolen&state=guessed", "state=guessed"])
async def test_what_nobody_began_ends_at_no_callback(site, company, query):
    """As who is to be signed in as somebody else (login CSRF)."""
    asked = company.asked["/token"]
    async with httpx2.AsyncClient(timeout=60) as web:
        page = await web.get(f"{site.origin}/accounts/oidc/company/login/callback/?{query}")
        assert page.status_code == 401 and "sessionid" not in web.cookies
    assert company.asked["/token"] == asked


async def test_what_was_begun_for_one_provider_ends_at_no_other(site, company, other):
    """Nor does a code of one go to the other (mix-up)."""
    async with httpx2.AsyncClient(timeout=60, follow_redirects=True) as web:
        guest, asked = Guest("fay"), other.asked["/token"]
        await guest._sent_away(web, await web.get(f"{site.origin}/accounts/login/"))
        query = {"code": "stolen", "state": company.queries[-1]["state"]}
        url = f"{site.origin}/accounts/oidc/other/login/callback/"
        page = await web.get(url, params=query)
        assert page.url.path.endswith("/callback/")
        home = await web.get(f"{site.origin}/accounts/login/")
        assert home.url.path == "/accounts/login/"  # who is signed in is sent on
    assert other.asked["/token"] == asked


async def test_the_same_name_at_two_providers_is_two_people(site, company):
    here, there = await connected(site, Guest("gus")), await connected(site, Guest("gus", "other"))
    company.gone.add("gus")
    assert (await refreshed(here)).status_code == 400
    assert (await refreshed(there)).status_code == 200
    assert [await enters(site, one) for one in (here, there)] == [401, 200]


async def test_a_request_asks_nobody_as_long_as_what_is_known_is_fresh(site, company):
    agent = await connected(site, Guest("hal"))
    before = company.asked.total()
    company.gone.add("hal")
    for _ in range(3):
        assert await enters(site, agent) == 200
    assert company.asked.total() == before


async def test_who_is_gone_there_has_no_more_tokens_and_none_that_is_good(site, company):
    agent = await connected(site, Guest("ida"))
    company.gone.add("ida")
    answered = await refreshed(agent)
    assert (answered.status_code, answered.json()["error"]) == (400, "invalid_grant")
    assert await enters(site, agent) == 401
    company.gone.discard("ida")  # who comes back connects anew
    assert await enters(site, agent) == 401
    assert (await refreshed(agent)).status_code == 400


async def test_who_is_gone_there_is_out_once_it_is_time_to_ask(site, company):
    agent = await connected(site, Guest("jim"))
    assert await enters(site, agent) == 200
    company.gone.add("jim")
    age(site, DUE)
    assert await enters(site, agent) == 401
    assert (await refreshed(agent)).status_code == 400


async def test_who_is_gone_there_before_the_code_is_used_gets_no_token(site, company):
    class Late(Guest):
        async def sent(self, url):
            found = await super().sent(url)
            company.gone.add(self.name)
            return found

    agent = Agent(site.endpoint, Late("kay").sent)
    await refused(agent)
    assert agent.told[0]["code"] and agent.answers("/oauth/token") == [400]
    assert agent.memory.tokens is None


async def test_tokens_that_expired_there_are_renewed_with_each_its_own(site, company):
    agent = await connected(site, Guest("leo"))
    for _ in range(2):
        company.expire()
        age(site, DUE)
        renewed = company.asked["/token"]
        assert await enters(site, agent) == 200
        assert company.asked["/token"] == renewed + 1


async def test_where_nobody_answers_it_goes_on_for_a_while(site, company):
    agent = await connected(site, Guest("mia"))
    company.broken = True
    age(site, DUE)
    assert await enters(site, agent) == 200
    assert (await refreshed(agent)).status_code == 200


async def test_where_nobody_answers_any_more_it_waits(tmp_path, company, other):
    site = ThirdSite(tmp_path, company, other)
    with site.serve() as served:
        agent = await connected(site, Guest("ned"))
        company.broken = True
        age(site, LATE)
        refusal = await bare(site, agent.memory.tokens.access_token)
        assert refusal.status_code == 503 and refusal.headers["retry-after"]
        answered = await refreshed(agent)
        assert answered.status_code == 503 and answered.headers["retry-after"]
        assert answered.json()["error"] == "temporarily_unavailable"
        assert not [one for one in company.given if one in served.told()]
    company.broken = False
    with site.serve():  # which has forgotten that it asked in vain
        assert await enters(site, agent) == 200
        assert (await refreshed(agent)).status_code == 200


async def test_a_disconnected_account_takes_along_what_it_let_in_and_no_more(site):
    by_one = await connected(site, guest := Guest("oda"))
    name = f"{guest.name}-company"
    site.run(CONNECT.format(name=name, at="other", uid="oda too"))
    by_two = Agent(site.endpoint, Guest("oda too", "other").sent)
    assert await by_two.whoami() == name
    site.run(DISCONNECT.format(at="company", uid="oda"))
    assert [await enters(site, one) for one in (by_one, by_two)] == [401, 200]
    assert [(await refreshed(one)).status_code for one in (by_one, by_two)] == [400, 200]


async def test_who_is_deleted_here_takes_all_along(site):
    agent = await connected(site, Guest("sue"))
    site.run(USER.format(name="sue-company") + "user.delete()")
    assert await enters(site, agent) == 401
    assert (await refreshed(agent)).status_code == 400


async def test_a_browser_of_an_account_that_was_disconnected_lets_nobody_in(site):
    guest = Guest("pam")
    await connected(site, guest)
    site.run(DISCONNECT.format(at="company", uid="pam"))
    agent = Agent(site.endpoint, guest.sent)
    await refused(agent)
    assert len(guest.read) == 2 and agent.answers("/oauth/token") == [400]


async def test_without_a_refresh_token_an_expired_one_ends_it(site, company):
    agent = await connected(site, Guest("quo"))
    site.run(KEEP_TOKEN.format("token_secret=''"))
    assert await enters(site, agent) == 200
    company.expire()
    age(site, DUE)
    assert await enters(site, agent) == 401


SAID = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@asynccontextmanager
async def opened(site: ThirdSite, agent: Agent) -> AsyncIterator[Any]:
    """A stream on which nobody says anything, and how its session is answered."""
    headers = {"authorization": f"Bearer {agent.memory.tokens.access_token}", "accept": BOTH}
    async with httpx2.AsyncClient(timeout=120, headers=headers) as web:
        begun = await web.post(site.endpoint, json=STARTED)
        named = {"mcp-session-id": begun.headers["mcp-session-id"],
                 "mcp-protocol-version": "2025-11-25"}  # fmt: skip

        async def answered() -> int:
            return (await web.post(site.endpoint, json=SAID, headers=named)).status_code

        assert await answered() == 202
        listening = named | {"accept": "text/event-stream"}
        async with web.stream("GET", site.endpoint, headers=listening) as stream:
            assert stream.status_code == 200
            yield stream, answered


async def test_what_is_open_ends_when_they_are_gone_there(site, company):
    agent = await connected(site, Guest("ray"))
    async with opened(site, agent) as (stream, answered):
        company.gone.add("ray")
        age(site, DUE)  # and nobody sends a request any more
        await stream.aread()
        assert await answered() == 401


@pytest.mark.slow
async def test_without_a_grace_what_is_open_ends_only_when_they_are_gone_there(
    tmp_path, company, other
):
    """It stays open for three times as long as is known what the provider said."""
    site = ThirdSite(tmp_path, company, other)
    site.environ |= {"MAX_AGE": "10", "GRACE": "0"}
    with site.serve():
        agent = await connected(site, Guest("tom"))
        async with opened(site, agent) as (stream, answered):
            reading = asyncio.create_task(stream.aread())
            ended, _ = await asyncio.wait([reading], timeout=32)
            assert not ended
            company.gone.add("tom")
            await asyncio.wait_for(reading, 60)
            assert await answered() == 401
