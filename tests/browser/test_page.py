"""The page in a real browser: how it looks, and that everybody can use it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from .conftest import ORIGIN, sign_in
from .looking import CONTRAST, NAMES, OUTLINE, OVERFLOW, SMALL, STOPS

IMAGES = Path(__file__).parents[2] / "docs/images"
LARGEST = 200_000  # bytes of an image
LOOKS = {
    "page-light": {"color_scheme": "light", "height": 960},
    "page-dark": {"color_scheme": "dark", "height": 960},
    "page-phone": {"color_scheme": "light", "width": 360, "height": 740},
}
WIDTHS = (320, 360, 768, 1119, 1120, 1920)
EVERY = pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)


def opened(page):
    """Everything that can be opened is."""
    opening = "one => { one.removeAttribute('name'); one.open = true }"
    page.evaluate(f"document.querySelectorAll('details').forEach({opening})")
    return page


# How it looks.


@pytest.mark.parametrize("name", LOOKS)
def test_the_pictures_of_the_documentation(visit, name):
    """Written anew by SCREENSHOTS=1."""
    page = visit("alice", **LOOKS[name])
    page.locator("#tool-search_trip > summary").click()
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    if os.environ.get("SCREENSHOTS") == "1":
        page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")
    taken = page.screenshot(animations="disabled")
    kept = (IMAGES / f"{name}.png").read_bytes()
    assert len(kept) < LARGEST
    assert kept[16:24] == taken[16:24]  # width and height in PNG's header


@EVERY
def test_its_colours_can_be_told_apart(visit, look):
    """WCAG 2.2, 1.4.3: 4.5 to 1, and 3 to 1 where letters are large."""
    page = opened(visit("alice", **look))
    assert page.evaluate(CONTRAST) == []


def test_light_and_dark_are_two(visit):
    page = visit()
    grounds = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2


def test_nothing_is_scrolled_sideways(visit):
    page = opened(visit("alice"))
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(OVERFLOW) == [], width


def test_the_longest_words_fit(visit):
    page = opened(visit("alice"))
    texts = "h1, h3 code, .title, .tag, .summary, .uri, dt code, .type, pre code, strong, nav a"
    longer = f"one => {{ one.textContent = '{'x' * 128}' }}"
    page.evaluate(f"document.querySelectorAll('{texts}').forEach({longer})")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(OVERFLOW) == [], width


def test_a_finger_hits_what_it_points_at(visit):
    """WCAG 2.2, 2.5.8: 24 by 24 pixels, but for links in a sentence."""
    assert opened(visit("alice", width=360)).evaluate(SMALL) == []


def test_who_wants_no_motion_gets_none(visit):
    page = visit(reduced_motion="reduce")
    style = "getComputedStyle(document.querySelector('summary'), '::after').transitionDuration"
    assert page.evaluate(style) == "0s"


def test_on_paper_everything_is_told(visit):
    page = visit("alice")
    hidden = page.locator("#tool-search_city dl").first
    assert not hidden.is_visible()
    page.emulate_media(media="print")
    assert hidden.is_visible() and not page.get_by_role("navigation").is_visible()


# Without a mouse, without seeing it.


def test_the_first_tab_leads_past_the_header(visit):
    page = visit(java_script_enabled=False)
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the contents")
    assert skip.evaluate("one => one === document.activeElement")
    assert skip.bounding_box()["x"] > 0
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_everything_is_reached_by_tab_and_seen_to_be(visit):
    page = visit("alice")
    reached = []
    for _ in range(page.evaluate(STOPS)):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(OUTLINE))
    assert all(one["outline"] >= 2 for one in reached), reached
    places = [one["place"] for one in reached]
    assert places == sorted(places) and len(set(places)) == len(places)


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_key_opens_what_is_closed(visit, key):
    page = visit("alice", java_script_enabled=False)
    tool = page.locator("#tool-search_city")
    assert not tool.get_by_text("population__gte").is_visible()
    tool.locator("> summary").focus()
    page.keyboard.press(key)
    assert tool.get_by_text("population__gte").is_visible()


def test_one_client_is_open_at_a_time(visit):
    page = visit(java_script_enabled=False)
    code, cursor = (
        page.locator(".connection-methods details").filter(
            has=page.get_by_role("heading", name=name, exact=True)
        )
        for name in ("Claude Code", "Cursor")
    )
    assert code.locator("pre").is_visible() and not cursor.locator("pre").is_visible()
    cursor.locator("summary").click()
    assert cursor.locator("pre").is_visible() and not code.locator("pre").is_visible()


def test_its_parts_have_names(visit):
    page = opened(visit("alice"))
    for role in ("banner", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1, role
    assert page.get_by_role("navigation", name="On this page").count() == 1
    for name in ("Connect", r"Tools \d+", r"Resources \d+", r"Prompts \d+"):
        assert page.get_by_role("region", name=re.compile(f"^{name}$")).count() == 1, name
    assert page.title() == "The atlas"
    assert page.evaluate(NAMES) == []


def test_headings_are_in_order(visit):
    page = opened(visit("alice"))
    levels = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map(one => +one.tagName[1])"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))


# Using it.


def test_who_signs_in_comes_back_to_what_is_theirs(chromium, address, atlas):
    with chromium.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(address)
        assert page.locator("[id^=tool-]").count() == 0
        sign_in(page, address, "alice", atlas.passwords["alice"])
        assert page.url == address
        assert page.get_by_text("Signed in as alice").is_visible()
        assert page.locator("#tool-plan_trip").is_visible()
        assert page.get_by_role("link", name="Sign in").count() == 0
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("link", name="Sign in").wait_for()
        assert page.url == address and page.get_by_text("Signed in").count() == 0


def test_a_click_selects_what_is_to_be_copied(visit):
    page = opened(visit())
    for place in page.locator("pre code, .address code").all():
        place.click()
        selected = page.evaluate("getSelection().toString()")
        assert selected == place.text_content()
    assert page.locator(".address code").text_content() == f"{ORIGIN}/mcp"


def test_nobody_is_asked_to_copy_a_token_where_people_sign_in(visit):
    page = opened(visit("alice"))
    assert page.get_by_text("where you sign in and allow access").is_visible()
    assert (
        page.locator(".connection-methods pre").count() > 5 and "YOUR_TOKEN" not in page.content()
    )


def test_links_of_the_page_lead_to_its_parts(visit):
    page = visit("alice", java_script_enabled=False)
    from playwright.sync_api import expect

    page.get_by_role("navigation").get_by_role("link", name="Prompts").click()
    assert page.url.endswith("#prompts")
    expect(page.get_by_role("region", name="Prompts")).to_be_in_viewport()


def test_buttons_open_the_clients(visit):
    page = visit()
    for name, scheme in (("Add to Cursor", "cursor://"), ("Add to VS Code", "vscode:")):
        assert page.get_by_role("link", name=name).get_attribute("href").startswith(scheme)


# What is measured above.


@pytest.mark.parametrize(
    ("measure", "wrong"),
    [
        (CONTRAST, "<p style='color: #777; background: #fff'>Pale</p>"),
        (CONTRAST, "<h1 style='color: #999; background: #fff'>Large</h1>"),
        (OVERFLOW, "<p style='width: 200vw'>Wide</p>"),
        (SMALL, "<a href='#' style='display: block; width: 20px'>x</a>"),
        (NAMES, "<a href='#x'>To nothing</a>"), (NAMES, "<h2></h2>"),
        (NAMES, "<img src='data:,'>"), (NAMES, "<i id=a></i><i id=a></i>"),
        (NAMES, "<section aria-labelledby='x'></section>"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(chromium, measure, wrong):
    good = "<p style='color: #000; background: #fff'><a href='#p' id=p>Dark</a></p>"
    with chromium.new_context() as context:
        page = context.new_page()
        for body in (good, good + wrong):
            page.set_content(f"<html lang=en><body style='background: #fff'>{body}")
            assert bool(page.evaluate(measure)) == (body != good)
