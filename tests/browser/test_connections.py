"""The page of connected apps in a real browser: readable, accessible and usable.

With ``SCREENSHOTS`` in the environment, screenshots are written to that directory.
"""

from __future__ import annotations

import os
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from django.utils import timezone

from django_mcp.oauth.models import Activity, ClientProfile
from tests.oauth.conftest import alice, in_public, public_client, web  # noqa: F401
from tests.oauth.flows import issued, registered
from tests.oauth.test_connected_apps import activity_of, make_personal_token

from .looking import CONTRAST, NAMES, OVERFLOW
from .test_consent import SMALL, STACKED_MARKS, STOPS, WIDTHS, allow_async_unsafe  # noqa: F401

PAGE = "/oauth/connections"
STATES = ("nothing", "much", "ended", "not there")


@pytest.fixture
def pages(web, alice, public_client):  # noqa: F811
    """The HTML of the page in every state, rendered before the browser starts."""
    web.force_login(alice)
    empty = web.get(PAGE)
    document = registered("cimd", client_id="https://agent.example/client.json", name="Books")
    itself, piled = registered("dcr", name="W" * 200), registered("dcr", name=STACKED_MARKS)
    for client in (public_client, document, itself, piled):
        issued(alice, client)
    for number in range(5):
        at = timezone.now() - timedelta(hours=number)
        activity_of(alice, document, f"tool_{number}_{'n' * 90}", at=at, count=1 + 40 * number)
    activity_of(alice, document, "policy://{name}", method="resources/read")
    ClientProfile.objects.filter(client_id=document.client_id).update(blocked=timezone.now())
    make_personal_token(alice, "P" * 90, scopes=["mcp"])
    assert Activity.objects.count() == 6
    much, ended = web.get(PAGE), web.post(PAGE, {"client": piled.client_id})
    return [one.content.decode() for one in (empty, much, ended, web.post(PAGE, {"client": "x"}))]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_readable_and_usable_at_every_width(pages, chromium, scheme):
    with chromium.new_context(color_scheme=scheme) as context:
        page = context.new_page()
        for face, html in zip(STATES, pages, strict=True):
            page.set_content(html)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 740})
                assert page.evaluate(OVERFLOW) == [], width
                keep(page, f"connections-{face}-{scheme}-{width}")
            assert page.evaluate(CONTRAST) == [] and page.evaluate(NAMES) == []
            assert page.evaluate(SMALL) == 0
            page.keyboard.press("Tab")  # so that what has the focus shows it
            assert all(width >= 2 for width in page.evaluate(STOPS))


def keep(page, name):
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def test_landmarks_headings_and_button_names(pages, chromium):
    with chromium.new_context() as context:
        page = context.new_page()
        for html in pages:
            page.set_content(html)
            assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1
            levels = page.evaluate(
                "[...document.querySelectorAll('h1, h2, h3')].map(one => +one.tagName[1])"
            )
            assert levels[0] == 1 and levels.count(1) == 1
            assert all(after <= before + 1 for before, after in pairwise(levels))
            buttons = page.get_by_role("button").all()
            called = [one.get_attribute("aria-label") for one in buttons]
            assert len(set(called)) == len(called) and all(
                label.startswith(one.inner_text() + " ")
                for label, one in zip(called, buttons, strict=True)
            )


def test_result_of_an_action_is_a_status(pages, chromium):
    with chromium.new_context() as context:
        page = context.new_page()
        for html in pages[2:]:
            page.set_content(html)
            assert page.get_by_role("status").count() == 1
