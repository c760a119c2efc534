"""The official MCP client authorizes itself at a server in another process, over real HTTP."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.client.auth import OAuthFlowError

from tests.http import BOTH

from .agent import Agent, Person
from .site import Site

pytestmark = pytest.mark.slow

SHORT = 5  # lifetime of a token in seconds
USERS = "from django.contrib.auth.models import User; user = User.objects.get(username={name!r});"
REVOKE = USERS + "from django_mcp.oauth.revocation import revoke_user; print(revoke_user(user))"
DEACTIVATE = USERS + "user.is_active = False; user.save()"
COUNT_ROWS = """
from oauth2_provider.models import AccessToken, RefreshToken, Grant
print(AccessToken.objects.count(), RefreshToken.objects.count(), Grant.objects.count())
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("site"))
    with made.serve():
        yield made


@pytest.fixture
def person():
    return Person("alice")


@pytest.fixture
def agent(site, person):
    return Agent(site.endpoint, person.sent)


def query_of(url: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(url).query, strict_parsing=True)


async def flow_error(agent: Agent) -> BaseException:
    """Return the error that ends the flow, unwrapped from the exception groups."""
    with pytest.raises((OAuthFlowError, BaseExceptionGroup)) as raised:
        await agent.whoami()
    error: BaseException = raised.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return error


async def post_with_token(site: Site, token: str) -> httpx2.Response:
    """Send a request with a token, without an authorization flow."""
    async with httpx2.AsyncClient(timeout=60) as web:
        headers = {"authorization": f"Bearer {token}", "accept": BOTH}
        return await web.post(site.endpoint, headers=headers, json={})


def test_system_checks_have_no_messages(site):
    assert "no issues" in site.manage("check", "--fail-level", "WARNING")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_client_that_knows_only_the_endpoint_acts_for_the_user(site, agent, mode):
    assert await agent.whoami(mode) == "alice"
    assert agent.answers("/mcp").count(401) == 1
    assert agent.answers("/.well-known/oauth-protected-resource/mcp") == [200]
    assert agent.answers("/.well-known/oauth-authorization-server") == [200]
    assert agent.answers("/oauth/register") == [201]
    assert agent.answers("/oauth/token") == [200]
    assert set(agent.told[0]) == {"code", "state", "iss"} and agent.told[0]["iss"] == site.origin
    (url,) = agent.asked
    assert query_of(url)["resource"] == [site.endpoint] and query_of(url)["scope"] == ["mcp"]


async def test_consent_page_shows_client_server_scopes_and_destination(site, agent, person):
    await agent.whoami()
    (page,) = person.read
    for words in ("Connect an application to your account?", "Agent Smith unverified",
                  site.endpoint, "Use it with your permissions", "a program on this device",
                  "Signed in as alice"):  # fmt: skip
        assert words in page


async def test_endpoint_with_a_trailing_slash_is_the_same_server(site, person):
    agent = Agent(f"{site.endpoint}/", person.sent)
    assert await agent.whoami() == "alice"
    assert (await post_with_token(site, agent.memory.tokens.access_token)).status_code != 401


async def test_client_acts_for_each_of_two_users(site, agent):
    bob = Agent(site.endpoint, Person("bob").sent)
    assert (await agent.whoami(), await bob.whoami()) == ("alice", "bob")


async def test_signed_in_user_is_asked_for_consent_each_time(site, person):
    for number in (1, 2):
        assert await Agent(site.endpoint, person.sent).whoami() == "alice"
        assert len(person.read) == number


@pytest.mark.parametrize("method", ["none", "client_secret_post", "client_secret_basic"])
async def test_client_authenticates_by_the_method_it_registered(site, person, method):
    agent = Agent(site.endpoint, person.sent, token_endpoint_auth_method=method)
    assert await agent.whoami() == "alice"
    assert agent.memory.client.token_endpoint_auth_method == method
    assert bool(agent.memory.client.client_secret) == (method != "none")
    agent.provider.context.token_expiry_time = 1
    assert await agent.whoami() == "alice" and len(agent.asked) == 1


async def test_client_with_tokens_sends_no_oauth_requests(agent):
    await agent.whoami()
    del agent.requests[:]
    assert await agent.whoami() == "alice"
    assert {path for path, _ in agent.requests} == {"/mcp"} and 401 not in agent.answers("/mcp")


@pytest.mark.slow
async def test_expired_token_is_refreshed_without_consent(tmp_path, person):
    site = Site(tmp_path, seconds=SHORT)
    with site.serve():
        agent = Agent(site.endpoint, person.sent)
        async with agent.opened() as client:
            await client.call_tool("whoami", {})
            first = agent.memory.tokens
            while agent.provider.context.is_token_valid():  # noqa: ASYNC110 (no bell rings)
                await asyncio.sleep(0.1)
            assert (await post_with_token(site, first.access_token)).status_code == 401
            assert len(agent.asked) == 1
            found = await client.call_tool("whoami", {})
        assert found.content[0].text == "alice" and len(agent.asked) == 1
        assert set(agent.answers("/oauth/token")) == {200}
        renewed = agent.memory.tokens
        assert renewed.access_token != first.access_token
        assert renewed.refresh_token not in (None, first.refresh_token)


async def test_client_gets_access_denied_if_the_user_cancels(site):
    agent = Agent(site.endpoint, Person("alice", allow=False).sent)
    before = site.run(COUNT_ROWS)
    error = await flow_error(agent)
    assert isinstance(error, OAuthFlowError) and str(error) == "No authorization code received"
    (told,) = agent.told
    assert told.pop("state") == query_of(agent.asked[0])["state"][0]
    assert told == {"error": "access_denied", "iss": site.origin}
    assert agent.answers("/oauth/token") == [] and site.run(COUNT_ROWS) == before


async def test_revoked_token_leads_to_a_new_consent(site, agent):
    async with agent.opened() as client:
        await client.call_tool("whoami", {})
        first = agent.memory.tokens
        assert int(site.run(REVOKE.format(name="alice"))) >= 1
        refusal = await post_with_token(site, first.access_token)
        assert refusal.status_code == 401
        assert 'error="invalid_token"' in refusal.headers["www-authenticate"]
        found = await client.call_tool("whoami", {})
    assert found.content[0].text == "alice" and len(agent.asked) == 2
    assert agent.answers("/oauth/register") == [201]
    assert agent.memory.tokens.access_token != first.access_token


async def test_revoked_refresh_token_leads_to_a_new_flow(site, agent):
    await agent.whoami()
    site.run(REVOKE.format(name="alice"))
    agent.provider.context.token_expiry_time = 1
    assert await agent.whoami() == "alice"
    assert agent.answers("/oauth/token") == [200, 400, 200] and len(agent.asked) == 2


async def test_client_cannot_act_for_a_deactivated_user(tmp_path, person):
    site = Site(tmp_path)
    with site.serve():
        agent = Agent(site.endpoint, person.sent)
        assert await agent.whoami() == "alice"
        token = agent.memory.tokens.access_token
        site.run(DEACTIVATE.format(name="alice"))
        assert (await post_with_token(site, token)).status_code == 401
        error = await flow_error(agent)
        assert isinstance(error, AssertionError)  # of the person, who cannot sign in
        assert "Log in" in person.read[-1] and agent.answers("/oauth/token") == [200]


async def test_client_can_revoke_its_own_tokens(site, agent):
    await agent.whoami()
    tokens, metadata = agent.memory.tokens, agent.provider.context.oauth_metadata
    form, headers = agent.provider.context.prepare_token_auth({"token": tokens.refresh_token}, {})
    async with httpx2.AsyncClient(timeout=60) as web:
        ended = await web.post(str(metadata.revocation_endpoint), data=form, headers=headers)
    assert ended.status_code == 200
    assert (await post_with_token(site, tokens.access_token)).status_code == 401


async def test_logs_and_database_contain_no_secrets(tmp_path, person):
    site = Site(tmp_path)
    with site.serve() as server:
        agent = Agent(site.endpoint, person.sent)
        await agent.whoami()
        tokens, (told,) = agent.memory.tokens, agent.told
        await post_with_token(site, tokens.access_token + "x")
        secrets = tokens.access_token, tokens.refresh_token, agent.memory.client.client_secret
        kept = b"".join(file.read_bytes() for file in site.folder.glob("db.sqlite3*"))
        assert not [secret for secret in secrets if secret.encode() in kept]
        assert not [secret for secret in (*secrets, told["code"]) if secret in server.told()]


async def test_successful_flow_logs_nothing(tmp_path, person):
    site = Site(tmp_path)
    with site.serve() as server:
        for mode in ("auto", "legacy"):
            await Agent(site.endpoint, person.sent).whoami(mode)
        assert server.told() == ""
