"""The server page in a real browser: appearance, accessibility and links."""

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


def open_details(page):
    """Open all details elements."""
    opening = "one => { one.removeAttribute('name'); one.open = true }"
    page.evaluate(f"document.querySelectorAll('details').forEach({opening})")
    return page


# Appearance.


@pytest.mark.parametrize("name", LOOKS)
def test_screenshots_of_the_documentation(visit, name):
    """SCREENSHOTS=1 writes them again."""
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
def test_color_contrast(visit, look):
    """WCAG 2.2, 1.4.3: 4.5 to 1, and 3 to 1 for large text."""
    page = open_details(visit("alice", **look))
    assert page.evaluate(CONTRAST) == []


def test_light_and_dark_color_schemes_differ(visit):
    page = visit()
    grounds = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2


def test_page_does_not_scroll_horizontally(visit):
    page = open_details(visit("alice"))
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(OVERFLOW) == [], width


def test_long_words_do_not_overflow(visit):
    page = open_details(visit("alice"))
    texts = "h1, h3 code, .title, .tag, .summary, .uri, dt code, .type, pre code, strong, nav a"
    longer = f"one => {{ one.textContent = '{'x' * 128}' }}"
    page.evaluate(f"document.querySelectorAll('{texts}').forEach({longer})")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(OVERFLOW) == [], width


def test_touch_targets_are_large_enough(visit):
    """WCAG 2.2, 2.5.8: 24 by 24 pixels, except links in a sentence."""
    assert open_details(visit("alice", width=360)).evaluate(SMALL) == []


def test_reduced_motion_is_respected(visit):
    page = visit(reduced_motion="reduce")
    style = "getComputedStyle(document.querySelector('summary'), '::after').transitionDuration"
    assert page.evaluate(style) == "0s"


def test_print_shows_all_details(visit):
    page = visit("alice")
    hidden = page.locator("#tool-search_city dl").first
    assert not hidden.is_visible()
    page.emulate_media(media="print")
    assert hidden.is_visible() and not page.get_by_role("navigation").is_visible()


# Keyboard and screen readers.


def test_first_tab_stop_skips_the_header(visit):
    page = visit(java_script_enabled=False)
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the contents")
    assert skip.evaluate("one => one === document.activeElement")
    assert skip.bounding_box()["x"] > 0
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_all_tab_stops_are_reached_and_outlined(visit):
    page = visit("alice")
    reached = []
    for _ in range(page.evaluate(STOPS)):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(OUTLINE))
    assert all(one["outline"] >= 2 for one in reached), reached
    places = [one["place"] for one in reached]
    assert places == sorted(places) and len(set(places)) == len(places)


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_keyboard_opens_details(visit, key):
    page = visit("alice", java_script_enabled=False)
    tool = page.locator("#tool-search_city")
    assert not tool.get_by_text("population__gte").is_visible()
    tool.locator("> summary").focus()
    page.keyboard.press(key)
    assert tool.get_by_text("population__gte").is_visible()


def test_only_one_client_is_open_at_a_time(visit):
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


def test_landmarks_have_names(visit):
    page = open_details(visit("alice"))
    for role in ("banner", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1, role
    assert page.get_by_role("navigation", name="On this page").count() == 1
    for name in ("Connect", r"Tools \d+", r"Resources \d+", r"Prompts \d+"):
        assert page.get_by_role("region", name=re.compile(f"^{name}$")).count() == 1, name
    assert page.title() == "The atlas"
    assert page.evaluate(NAMES) == []


def test_headings_are_in_order(visit):
    page = open_details(visit("alice"))
    levels = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map(one => +one.tagName[1])"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))


# Links and buttons.


def test_sign_in_returns_to_the_page(chromium, address, atlas):
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


def test_click_selects_code_to_copy(visit):
    page = open_details(visit())
    for place in page.locator("pre code, .address code").all():
        place.click()
        selected = page.evaluate("getSelection().toString()")
        assert selected == place.text_content()
    assert page.locator(".address code").text_content() == f"{ORIGIN}/mcp"


def test_no_token_to_copy_if_clients_sign_in(visit):
    page = open_details(visit("alice"))
    assert page.get_by_text("where you sign in and allow access").is_visible()
    assert (
        page.locator(".connection-methods pre").count() > 5 and "YOUR_TOKEN" not in page.content()
    )


def test_navigation_links_lead_to_sections(visit):
    page = visit("alice", java_script_enabled=False)
    from playwright.sync_api import expect

    page.get_by_role("navigation").get_by_role("link", name="Prompts").click()
    assert page.url.endswith("#prompts")
    expect(page.get_by_role("region", name="Prompts")).to_be_in_viewport()


def test_deep_links_open_the_clients(visit):
    page = visit()
    for name, scheme in (("Add to Cursor", "cursor://"), ("Add to VS Code", "vscode:")):
        assert page.get_by_role("link", name=name).get_attribute("href").startswith(scheme)


# The measurements themselves.


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
def test_measurements_detect_defects(chromium, measure, wrong):
    good = "<p style='color: #000; background: #fff'><a href='#p' id=p>Dark</a></p>"
    with chromium.new_context() as context:
        page = context.new_page()
        for body in (good, good + wrong):
            page.set_content(f"<html lang=en><body style='background: #fff'>{body}")
            assert bool(page.evaluate(measure)) == (body != good)
