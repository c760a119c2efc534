"""Step-up authorization in a real browser, with the official client."""

from __future__ import annotations

import pytest

from tests.oauth.agent import text
from tests.oauth.site import Site

from .test_authorization import SECONDS, ClientInThread, callback, page, sign_in

__all__ = ["callback", "page"]  # fixtures


@pytest.fixture(scope="module")
def site(program, tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("site"), SITE_SCOPES="1")
    made.permit("alice", "change_user")
    with made.serve():
        yield made


async def rename_with_scopes(agent):
    """Return user and scopes before a rename, its result, and the scopes afterwards."""
    async with agent.opened() as client:
        before = text(await client.call_tool("whoami", {})), agent.memory.tokens.scope
        said = await client.call_tool("rename", {"to": "Alicia"})
    return before, said.content[0].text, agent.memory.tokens.scope


def allow(page, callback):
    page.get_by_role("button", name="Allow").click()
    page.wait_for_url(f"{callback.url}?*")


def test_user_grants_the_missing_scope(site, callback, page):
    """The user first allows the requested scope, and later the new one."""
    client = ClientInThread(site.endpoint, callback, rename_with_scopes)
    page.goto(client.urls.get(timeout=SECONDS))
    sign_in(page, "alice")
    main = page.get_by_role("main")
    assert "Know who you are" in main.inner_text() and "Change users" not in main.inner_text()
    allow(page, callback)

    page.goto(client.urls.get(timeout=SECONDS))  # the 403; nobody signs in again
    shown = [term.inner_text() for term in page.locator("dt").all()]
    assert "New permissions" in shown and "Existing permissions" in shown
    new = page.locator("dl > div", has_text="New permissions")
    old = page.locator("dl > div", has_text="Existing permissions")
    assert "Change users" in new.inner_text() and "Know who you are" in old.inner_text()
    allow(page, callback)

    before, said, scope = client.said.result(SECONDS)
    assert before == ("alice", "basic") and said == "alice is Alicia"
    assert set(scope.split()) == {"basic", "write"}
    assert client.agent.answers("/mcp").count(403) == 1
    assert len(client.agent.asked) == 2


def test_scopes_of_two_users_in_one_browser_are_separate(site, callback, page):
    """Scopes that one user granted are not given or widened by the other."""
    client = ClientInThread(site.endpoint, callback, try_to_rename)
    page.goto(client.urls.get(timeout=SECONDS))
    sign_in(page, "alice")
    allow(page, callback)
    page.goto(client.urls.get(timeout=SECONDS))
    before = scopes_of(site, "alice")
    assert "Existing permissions" in page.get_by_role("main").inner_text()
    page.get_by_role("button", name="Sign in as another user").click()
    sign_in(page, "bob")
    words = page.get_by_role("main").inner_text()
    assert "bob" in words and "alice" not in words and "Existing permissions" not in words
    allow(page, callback)
    assert client.said.result(SECONDS) == "Unknown tool: rename"  # it is bob's client now
    assert scopes_of(site, "alice") == before and scopes_of(site, "bob") == "['basic write']"


def scopes_of(site, name):
    return site.run(
        "from oauth2_provider.models import get_access_token_model as tokens;"
        f"mine = tokens().objects.filter(user__username={name!r}).order_by('pk');"
        "print([token.scope for token in mine])"
    )


async def try_to_rename(agent):
    async with agent.opened() as client:
        text(await client.call_tool("whoami", {}))
        try:
            return (await client.call_tool("rename", {"to": "Robert"})).content[0].text
        except Exception as error:
            return str(error)
