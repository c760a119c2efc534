"""The consent page in a real browser: readable, accessible and usable."""

from __future__ import annotations

import pytest

from tests.oauth.conftest import alice, in_public, public_client, web  # noqa: F401
from tests.oauth.consent import AUTHORIZE, SITE, fresh_cores, registered, url  # noqa: F401

from .looking import CONTRAST, NAMES, OVERFLOW

WIDTHS = (320, 360, 768, 1200)
STACKED_MARKS = "Z\u0351\u0352\u0353" * 15  # marks upon marks
SMALLEST = 24  # pixels, of what is to be hit (WCAG 2.2, 2.5.8)
SMALL = f"""[...document.querySelectorAll('button')].map(one => one.getBoundingClientRect())
  .filter(box => box.height < {SMALLEST} || box.width < {SMALLEST}).length"""
STOPS = """[...document.querySelectorAll('button')].map(one => {
  one.focus();
  return parseFloat(getComputedStyle(one).outlineWidth);
})"""


@pytest.fixture(scope="module", autouse=True)
def allow_async_unsafe():
    """Allow queries though the browser runs an event loop in this thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        yield


@pytest.fixture
def pages(web, alice, public_client):  # noqa: F811
    """The HTML of the page for several clients, rendered before the browser starts."""
    web.force_login(alice)
    document = registered("cimd", client_id="https://agent.example/client.json")
    itself = registered("dcr", name="W" * 200)
    asked = (
        url(public_client), url(document), url(document, redirect_uri=SITE),
        url(itself, redirect_uri=SITE), url(registered("dcr", name=STACKED_MARKS)), AUTHORIZE,
    )  # fmt: skip
    return [web.get(each).content.decode() for each in asked]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_readable_and_usable_at_every_width(pages, chromium, scheme):
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


def test_landmarks_and_one_main_heading(pages, chromium):
    with chromium.new_context() as context:
        page = context.new_page()
        for html in pages:
            page.set_content(html)
            assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1
            assert page.get_by_role("heading", level=1).count() == 1


PLACES = """[...document.querySelectorAll('.actions button')]
  .map(one => one.getBoundingClientRect()).map(box => [box.top, box.left])"""


@pytest.mark.parametrize("width", WIDTHS)
def test_visual_order_of_the_buttons_equals_their_tab_order(pages, chromium, width):
    with chromium.new_context(viewport={"width": width, "height": 740}) as context:
        page = context.new_page()
        page.set_content(pages[0])
        places = page.evaluate(PLACES)
    assert len(places) == 2 and places == sorted(places)


def test_tab_order_of_the_buttons(pages, chromium):
    with chromium.new_context() as context:
        page = context.new_page()
        page.set_content(pages[0])
        reached = []
        for _ in range(3):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.textContent"))
    assert reached == ["Sign in as another user", "Allow", "Cancel"]
