"""The admin's inspector in a browser: live progress, and questions with and without JavaScript."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.servers import Served

from .conftest import SECONDS
from .looking import CONTRAST, NAMES, OVERFLOW

APPLICATION = "tests.browser.with_static_files:application"
CREATE = (
    "from django.contrib.auth.models import User; "
    "User.objects.filter(username='root').exists() "
    "or User.objects.create_superuser('root', password='secret')"
)


@pytest.fixture(scope="module")
def admin(atlas: Any) -> Iterator[str]:
    """The URL of the admin."""
    atlas.manage("shell", "-c", CREATE)
    server = Served("uvicorn", atlas.folder, application=APPLICATION, **atlas.environ)
    with server:
        yield f"http://127.0.0.1:{server.port}/admin/"


@pytest.fixture
def inspect(chromium: Any, admin: str) -> Iterator[Callable[..., Any]]:
    """Return a function that opens the inspector as a superuser, for one tool.

    The test fails at errors in the console.
    """
    problems: list[str] = []
    with ExitStack() as stack:

        def opened(tool: str = "", revision: str = "2025-11-25", **options: Any) -> Any:
            context = stack.enter_context(chromium.new_context(**options))
            context.set_default_timeout(SECONDS * 1000)
            page = context.new_page()
            page.on("console", lambda message: note(problems, message))
            page.on("pageerror", lambda error: problems.append(str(error)))
            query = {"caller": "self", "server": "default", "revision": revision}
            query |= {"kind": "tool", "name": tool} if tool else {}
            page.goto(f"{admin}django_mcp/inspector/?{urlencode(query)}")
            page.get_by_label("Username").fill("root")
            page.get_by_label("Password").fill("secret")
            page.get_by_role("button", name="Log in").click()
            page.get_by_role("heading", name="Inspector").wait_for()
            return page

        yield opened
    assert not problems


def note(problems: list[str], message: Any) -> None:
    if not message.location["url"].endswith("/favicon.ico"):  # the project has none
        problems.append(message.text)


def test_progress_appears_while_the_call_runs_and_the_call_can_be_stopped(inspect):
    page = inspect("ride_slow_train")
    page.get_by_label("country").fill("IN")
    page.get_by_label("seconds").fill("10")
    page.get_by_role("button", name="Call").click()
    page.get_by_text("Server: notifications/progress").wait_for()
    assert page.get_by_role("status").text_content().endswith(" people")
    assert page.get_by_role("progressbar").get_attribute("value") == "1"
    assert page.locator("#inspector-result").text_content().strip() == ""
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("You have stopped the call.").wait_for()
    page.get_by_label("seconds").fill("0")
    page.get_by_role("button", name="Call").click()
    page.get_by_text("The call has succeeded.").wait_for()
    assert page.get_by_text("Server: notifications/progress").count() == 5
    assert not page.get_by_role("button", name="Stop").is_visible()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_question_is_answered_in_the_page(inspect, script, revision):
    page = inspect("plan_trip", revision, java_script_enabled=script)
    page.get_by_label("title").fill("North")
    page.get_by_label("cities").fill("1850147\n2643743")
    page.get_by_role("button", name="Call").click()
    page.get_by_text("When does “North” take place?", exact=True).wait_for()
    for label, day in (("starts", "2030-05-01"), ("ends", "2030-05-09")):
        page.locator(f"[name$=-{label}]").last.fill(day)
    page.get_by_role("button", name="Send answers").click()
    page.get_by_text("The call has succeeded.").wait_for()
    assert '"title": "North"' in page.locator("#inspector-result").text_content()
    assert page.get_by_text("Server: elicitation/create").count() == (revision == "2025-11-25")


def test_error_in_a_field_is_shown_beside_it(inspect):
    page = inspect("ride_slow_train")
    page.get_by_label("stops").fill("five")
    page.get_by_role("button", name="Call").click()
    page.get_by_text("Enter a whole number.").wait_for()
    assert page.get_by_label("stops").get_attribute("aria-invalid") == "true"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_readable_and_named(inspect, scheme):
    page = inspect(color_scheme=scheme)
    assert [page.evaluate(look) for look in (CONTRAST, NAMES)] == [[], []]
    page.get_by_role("link", name="plan_trip").click()
    page.get_by_label("title").fill("North")
    page.get_by_label("cities").fill("1850147")
    page.get_by_role("button", name="Call").click()
    page.get_by_text("When does “North” take place?", exact=True).wait_for()
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert [page.evaluate(look) for look in (CONTRAST, NAMES)] == [[], []]
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.evaluate(OVERFLOW) == []
    levels = page.eval_on_selector_all(
        "h1, h2, h3, h4",
        "all => all.filter(one => one.checkVisibility()).map(one => +one.tagName[1])",
    )
    content = levels[levels.index(1) :]
    assert all(after - before <= 1 for before, after in zip(content, content[1:], strict=False))
