"""Sign-in at other OpenID providers: the documented recipe, over real HTTP.

The official client, a server with django-allauth, and OpenID providers. Accounts with the same name
at ``company`` and ``other`` are different people.
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
from .test_end_to_end import flow_error, post_with_token
from .third.people import Guest, ThirdSite
from .third.provider import Provider

pytestmark = pytest.mark.slow

USER = "from django.contrib.auth.models import User; user = User.objects.get(username={name!r});"
ACCOUNTS = "from allauth.socialaccount.models import SocialAccount;"
CONNECT = USER + ACCOUNTS + "SocialAccount.objects.create(user=user, provider={at!r}, uid={uid!r})"
DISCONNECT = ACCOUNTS + "SocialAccount.objects.get(provider={at!r}, uid={uid!r}).delete()"
KEEP_TOKEN = "from allauth.socialaccount.models import SocialToken; SocialToken.objects.update({})"
FORGET_TOKEN = (
    "from allauth.socialaccount.models import SocialToken;"
    "SocialToken.objects.get(account__uid={uid!r}).delete()"
)
MAKE_BINDINGS_OLDER = """
from datetime import timedelta
from django.utils import timezone
from django_mcp.oauth.models import TokenBinding
print(TokenBinding.objects.update(checked=timezone.now() - timedelta(seconds={seconds})))
"""
DUE, LATE = 301, 901  # seconds: those of the page, and one more
INITIALIZE = {
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
def providers_work(company, other):
    yield
    for provider in (company, other):
        provider.broken = False


async def connect_client(site: ThirdSite, guest: Guest) -> Agent:
    """Return a client that a guest authorized."""
    agent = Agent(site.endpoint, guest.sent)
    assert await agent.whoami() == f"{guest.name}-{guest.at}"
    return agent


def make_bindings_older(site: ThirdSite, seconds: float) -> None:
    """Move the last check of all accounts into the past."""
    assert int(site.run(MAKE_BINDINGS_OLDER.format(seconds=seconds))) > 0


async def endpoint_status(site: ThirdSite, agent: Agent) -> int:
    """Return the status for the client's access token."""
    status = (await post_with_token(site, agent.memory.tokens.access_token)).status_code
    return 200 if status == 400 else status  # the request itself says nothing


async def refresh_tokens(agent: Agent) -> Any:
    """Return the response to the client's refresh token."""
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
def test_unsafe_allauth_settings_are_a_warning(site, name, id):
    told = site.manage("check", **{name: True})
    assert f"(django_mcp_oauth.{id}) {name} is on" in told and told.count("django_mcp_oauth.") == 1


async def test_user_signs_in_at_the_provider_and_consents_here(site, company):
    guest = Guest("ann")
    agent = await connect_client(site, guest)
    assert guest.signed_in == 1 and len(guest.read) == 1
    assert "Signed in as ann-company" in guest.read[0] and "Agent Smith" in guest.read[0]
    asked = company.queries[-1]
    assert asked["state"] and asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"].startswith(f"{site.origin}/accounts/oidc/company/")
    assert set(agent.told[0]) == {"code", "state", "iss"} and agent.told[0]["iss"] == site.origin


async def test_tokens_are_not_passed_to_or_from_the_provider(site, company):
    agent = await connect_client(site, Guest("bea"))
    make_bindings_older(site, DUE)
    assert await endpoint_status(site, agent) == 200 == (await refresh_tokens(agent)).status_code
    tokens = agent.memory.tokens
    ours = [tokens.access_token, tokens.refresh_token, agent.told[0]["code"]]
    assert company.given and not set(ours) & set(company.given)
    assert not [one for one in ours for said in company.received if one in said]
    kept = b"".join(file.read_bytes() for file in site.folder.glob("db.sqlite3*"))
    assert not [one for one in ours[:2] if one.encode() in kept]


async def test_token_of_the_provider_is_rejected(site, company):
    await connect_client(site, Guest("cid"))
    theirs = [token for token, sub in company.access.items() if sub == "cid"]
    assert theirs and [(await post_with_token(site, token)).status_code for token in theirs] == [
        401
    ]


async def test_second_client_needs_consent_without_signing_in_again(site, company):
    guest = Guest("dan")
    await connect_client(site, guest)
    sent = company.asked["/authorize"]
    await connect_client(site, guest)
    assert len(guest.read) == 2 and guest.signed_in == 1
    assert company.asked["/authorize"] == sent
    guest.allow = False
    agent = Agent(site.endpoint, guest.sent)
    await flow_error(agent)
    assert agent.told[0]["error"] == "access_denied" and agent.memory.tokens is None


async def test_cancelling_after_signing_in_gives_no_token(site):
    agent = Agent(site.endpoint, Guest("eve", allow=False).sent)
    await flow_error(agent)
    assert agent.told[0]["error"] == "access_denied" and agent.memory.tokens is None


@pytest.mark.parametrize("query", ["code=stolen", "code=stolen&state=guessed", "state=guessed"])
async def test_callback_without_a_started_login_is_rejected(site, company, query):
    """Login CSRF: the attacker would sign in the user as somebody else."""
    asked = company.asked["/token"]
    async with httpx2.AsyncClient(timeout=60) as web:
        page = await web.get(f"{site.origin}/accounts/oidc/company/login/callback/?{query}")
        assert page.status_code == 401 and "sessionid" not in web.cookies
    assert company.asked["/token"] == asked


async def test_callback_of_another_provider_is_rejected(site, company, other):
    """Mix-up: the code of one provider must not be sent to the other."""
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


async def test_same_name_at_two_providers_is_two_users(site, company):
    here, there = (
        await connect_client(site, Guest("gus")),
        await connect_client(site, Guest("gus", "other")),
    )
    company.gone.add("gus")
    assert (await refresh_tokens(here)).status_code == 400
    assert (await refresh_tokens(there)).status_code == 200
    assert [await endpoint_status(site, one) for one in (here, there)] == [401, 200]


async def test_request_does_not_ask_the_provider_within_max_age(site, company):
    agent = await connect_client(site, Guest("hal"))
    before = company.asked.total()
    company.gone.add("hal")
    for _ in range(3):
        assert await endpoint_status(site, agent) == 200
    assert company.asked.total() == before


async def test_refresh_fails_and_token_ends_after_the_account_is_removed(site, company):
    agent = await connect_client(site, Guest("ida"))
    company.gone.add("ida")
    answered = await refresh_tokens(agent)
    assert (answered.status_code, answered.json()["error"]) == (400, "invalid_grant")
    assert await endpoint_status(site, agent) == 401
    company.gone.discard("ida")  # who comes back connects anew
    assert await endpoint_status(site, agent) == 401
    assert (await refresh_tokens(agent)).status_code == 400


async def test_removed_account_is_rejected_at_the_next_check(site, company):
    agent = await connect_client(site, Guest("jim"))
    assert await endpoint_status(site, agent) == 200
    company.gone.add("jim")
    make_bindings_older(site, DUE)
    assert await endpoint_status(site, agent) == 401
    assert (await refresh_tokens(agent)).status_code == 400


async def test_code_of_a_removed_account_is_rejected(site, company):
    class Late(Guest):
        async def sent(self, url):
            found = await super().sent(url)
            company.gone.add(self.name)
            return found

    agent = Agent(site.endpoint, Late("kay").sent)
    await flow_error(agent)
    assert agent.told[0]["code"] and agent.answers("/oauth/token") == [400]
    assert agent.memory.tokens is None


async def test_expired_token_of_the_provider_is_refreshed(site, company):
    agent = await connect_client(site, Guest("leo"))
    for _ in range(2):
        company.expire()
        make_bindings_older(site, DUE)
        renewed = company.asked["/token"]
        assert await endpoint_status(site, agent) == 200
        assert company.asked["/token"] == renewed + 1


async def test_new_refresh_token_is_kept_if_the_request_after_it_fails(
    tmp_path, company, other, monkeypatch
):
    """The provider accepts a refresh token once, so the stored one must always be the newest."""
    site = ThirdSite(tmp_path, company, other)
    userinfo = company._userinfo

    def fail_if_valid(*request: Any) -> Any:
        answer = userinfo(*request)
        return (503, {}, {}) if answer[0] == 200 else answer

    with site.serve():
        agent = await connect_client(site, Guest("uma"))
        company.expire()
        make_bindings_older(site, DUE)
        renewed = company.asked["/token"]
        with monkeypatch.context() as patch:
            patch.setattr(company, "_userinfo", fail_if_valid)
            assert await endpoint_status(site, agent) == 200
        assert company.asked["/token"] == renewed + 1
    company.expire()
    with site.serve():  # a new process: it does not remember that the check failed
        make_bindings_older(site, DUE)
        assert await endpoint_status(site, agent) == 200
        assert company.asked["/token"] == renewed + 2


async def test_account_without_a_stored_token_is_rejected(site):
    """As of a user who signed in before SOCIALACCOUNT_STORE_TOKENS was set."""
    agent = await connect_client(site, Guest("vic"))
    site.run(FORGET_TOKEN.format(uid="vic"))
    assert (await refresh_tokens(agent)).status_code == 400
    assert await endpoint_status(site, agent) == 401


async def test_unreachable_provider_is_tolerated_during_the_grace(site, company):
    agent = await connect_client(site, Guest("mia"))
    company.broken = True
    make_bindings_older(site, DUE)
    assert await endpoint_status(site, agent) == 200
    assert (await refresh_tokens(agent)).status_code == 200


async def test_unreachable_provider_leads_to_503_after_the_grace(tmp_path, company, other):
    site = ThirdSite(tmp_path, company, other)
    with site.serve() as served:
        agent = await connect_client(site, Guest("ned"))
        company.broken = True
        make_bindings_older(site, LATE)
        refusal = await post_with_token(site, agent.memory.tokens.access_token)
        assert refusal.status_code == 503 and refusal.headers["retry-after"]
        answered = await refresh_tokens(agent)
        assert answered.status_code == 503 and answered.headers["retry-after"]
        assert answered.json()["error"] == "temporarily_unavailable"
        assert not [one for one in company.given if one in served.told()]
    company.broken = False
    with site.serve():  # which has forgotten that it asked in vain
        assert await endpoint_status(site, agent) == 200
        assert (await refresh_tokens(agent)).status_code == 200


async def test_disconnecting_an_account_ends_only_its_tokens(site):
    by_one = await connect_client(site, guest := Guest("oda"))
    name = f"{guest.name}-company"
    site.run(CONNECT.format(name=name, at="other", uid="oda too"))
    by_two = Agent(site.endpoint, Guest("oda too", "other").sent)
    assert await by_two.whoami() == name
    site.run(DISCONNECT.format(at="company", uid="oda"))
    assert [await endpoint_status(site, one) for one in (by_one, by_two)] == [401, 200]
    assert [(await refresh_tokens(one)).status_code for one in (by_one, by_two)] == [400, 200]


async def test_deleting_the_user_ends_all_tokens(site):
    agent = await connect_client(site, Guest("sue"))
    site.run(USER.format(name="sue-company") + "user.delete()")
    assert await endpoint_status(site, agent) == 401
    assert (await refresh_tokens(agent)).status_code == 400


async def test_browser_session_of_a_disconnected_account_gets_no_token(site):
    guest = Guest("pam")
    await connect_client(site, guest)
    site.run(DISCONNECT.format(at="company", uid="pam"))
    agent = Agent(site.endpoint, guest.sent)
    await flow_error(agent)
    assert len(guest.read) == 2 and agent.answers("/oauth/token") == [400]


async def test_expired_provider_token_without_refresh_token_ends_access(site, company):
    agent = await connect_client(site, Guest("quo"))
    site.run(KEEP_TOKEN.format("token_secret=''"))
    assert await endpoint_status(site, agent) == 200
    company.expire()
    make_bindings_older(site, DUE)
    assert await endpoint_status(site, agent) == 401


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@asynccontextmanager
async def open_stream(site: ThirdSite, agent: Agent) -> AsyncIterator[Any]:
    """Open a stream, and yield it with a function that returns the status of its session."""
    headers = {"authorization": f"Bearer {agent.memory.tokens.access_token}", "accept": BOTH}
    async with httpx2.AsyncClient(timeout=120, headers=headers) as web:
        begun = await web.post(site.endpoint, json=INITIALIZE)
        named = {"mcp-session-id": begun.headers["mcp-session-id"],
                 "mcp-protocol-version": "2025-11-25"}  # fmt: skip

        async def answered() -> int:
            return (await web.post(site.endpoint, json=INITIALIZED, headers=named)).status_code

        assert await answered() == 202
        listening = named | {"accept": "text/event-stream"}
        async with web.stream("GET", site.endpoint, headers=listening) as stream:
            assert stream.status_code == 200
            yield stream, answered


async def test_open_stream_is_closed_when_the_account_is_removed(site, company):
    agent = await connect_client(site, Guest("ray"))
    async with open_stream(site, agent) as (stream, answered):
        company.gone.add("ray")
        make_bindings_older(site, DUE)  # and nobody sends a request any more
        await stream.aread()
        assert await answered() == 401


@pytest.mark.slow
async def test_stream_without_grace_stays_open_until_the_account_is_removed(
    tmp_path, company, other
):
    """The stream stays open for three times MAX_AGE."""
    site = ThirdSite(tmp_path, company, other)
    site.environ |= {"MAX_AGE": "10", "GRACE": "0"}
    with site.serve():
        agent = await connect_client(site, Guest("tom"))
        async with open_stream(site, agent) as (stream, answered):
            reading = asyncio.create_task(stream.aread())
            ended, _ = await asyncio.wait([reading], timeout=32)
            assert not ended
            company.gone.add("tom")
            await asyncio.wait_for(reading, 60)
            assert await answered() == 401
