"""The page of consent in a real browser: that it can be read, reached and used by everybody."""

from __future__ import annotations

import pytest

from tests.oauth.conftest import alice, in_public, public_client, web  # noqa: F401
from tests.oauth.consent import AUTHORIZE, SITE, fresh_cores, registered, url  # noqa: F401

from .looking import CONTRAST, NAMES, OVERFLOW

WIDTHS = (320, 360, 768, 1200)
PILED = "Z\u0351\u0352\u0353" * 15  # marks upon marks
SMALLEST = 24  # pixels, of what is to be hit (WCAG 2.2, 2.5.8)
SMALL = f"""[...document.querySelectorAll('button')].map(one => one.getBoundingClientRect())
  .filter(box => box.height < {SMALLEST} || box.width < {SMALLEST}).length"""
STOPS = """[...document.querySelectorAll('button')].map(one => {
  one.focus();
  return parseFloat(getComputedStyle(one).outlineWidth);
})"""


@pytest.fixture(scope="module", autouse=True)
def beside_a_loop():
    """The browser's runs in this thread, and awaits nothing of ours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        yield


@pytest.fixture
def pages(web, alice, public_client):  # noqa: F811
    """Every face of it, as it is sent: the browser has no part in that."""
    web.force_login(alice)
    document = registered("cimd", client_id="https://agent.example/client.json")
    itself = registered("dcr", name="W" * 200)
    asked = (
        url(public_client), url(document), url(document, redirect_uri=SITE),
        url(itself, redirect_uri=SITE), url(registered("dcr", name=PILED)), AUTHORIZE,
    )  # fmt: skip
    return [web.get(each).content.decode() for each in asked]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_and_used(pages, chromium, scheme):
    with chromium.new_context(color_scheme=scheme) as context:
        page = context.new_page()
        for html in pages:
            page.set_content(html)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 740})
                assert page.evaluate(OVERFLOW) == [], width
            assert page.evaluate(CONTRAST) == [] and page.evaluate(NAMES) == []
            assert page.evaluate(SMALL) == 0
            page.keyboard.press("Tab")  # so that what has the focus shows it
            assert all(width >= 2 for width in page.evaluate(STOPS))


def test_it_has_landmarks_and_one_title(pages, chromium):
    with chromium.new_context() as context:
        page = context.new_page()
        for html in pages:
            page.set_content(html)
            assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1
            assert page.get_by_role("heading", level=1).count() == 1


PLACES = """[...document.querySelectorAll('.actions button')]
  .map(one => one.getBoundingClientRect()).map(box => [box.top, box.left])"""


@pytest.mark.parametrize("width", WIDTHS)
def test_the_answers_are_seen_in_the_order_in_which_they_are_reached(pages, chromium, width):
    with chromium.new_context(viewport={"width": width, "height": 740}) as context:
        page = context.new_page()
        page.set_content(pages[0])
        places = page.evaluate(PLACES)
    assert len(places) == 2 and places == sorted(places)


def test_the_keyboard_comes_to_the_answers_in_their_order(pages, chromium):
    with chromium.new_context() as context:
        page = context.new_page()
        page.set_content(pages[0])
        reached = []
        for _ in range(3):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.textContent"))
    assert reached == ["Sign in as another user", "Allow", "Cancel"]
