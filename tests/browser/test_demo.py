"""``make demo`` in a real browser: a user signs in with the printed password, and a client acts."""

from __future__ import annotations

import re

import pytest

from tools import demo, serving
from tools.ports import free_port

from .looking import CONTRAST, NAMES, OVERFLOW
from .test_authorization import SECONDS, ClientInThread, callback, page  # noqa: F401

WIDTHS = (320, 768, 1280)


@pytest.fixture(scope="module")
def access(program, tmp_path_factory):
    """The token and the passwords of a prepared demo."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("demo")
        patch.setenv("ATLAS_DATABASE", str(folder / "atlas.sqlite3"))
        patch.setenv("DJANGO_SETTINGS_MODULE", "example_project.settings")
        yield demo.prepare(300)


@pytest.fixture(scope="module")
def origin(access):
    port = free_port()
    with serving.running(port):
        yield serving.origin(port)


@pytest.fixture
def printed(access, origin, capsys):
    """The instructions that the demo prints."""
    demo.instruct(origin, access)
    return capsys.readouterr().out


async def trips(agent):
    async with agent.opened() as client:
        found = await client.call_tool("search_trip", {})
        return [trip["title"] for trip in found.structured_content["results"]]


def test_client_with_the_printed_url_sees_the_trips_of_alice(printed, callback, page):  # noqa: F811
    endpoint = re.search(r"^The atlas is served at (\S+)\. ", printed, re.M)[1]
    password = re.search(r"^  alice +(\S+)$", printed, re.M)[1]
    client = ClientInThread(endpoint, callback, trips)
    page.goto(client.urls.get(timeout=SECONDS))
    page.get_by_label("Username").fill("alice")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Allow").wait_for()
    assert "The atlas" in page.get_by_role("main").inner_text()
    page.get_by_role("button", name="Allow").click()
    page.wait_for_url(f"{callback.url}?*")
    assert client.said.result(SECONDS) == ["Iberia", "Japan"]
    assert client.agent.answers("/oauth/register") == [201]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_login_page_is_readable_and_usable(origin, page, scheme):  # noqa: F811
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{origin}/accounts/login/?next=/mcp")
    page.get_by_label("Username").fill("alice")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    assert "correct username and password" in page.get_by_role("alert").inner_text()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 740})
        assert page.evaluate(OVERFLOW) == [], width
    assert page.evaluate(CONTRAST) == [] and page.evaluate(NAMES) == []
