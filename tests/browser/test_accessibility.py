"""axe-core finds nothing on any page, light and dark, with and without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import axe_playwright_python
import pytest

from .conftest import SECONDS
from .tour.shop import PASSWORD, Background, Shop

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
RUN = "axe.run({resultTypes: ['violations']}).then(found => found.violations)"
# Django's admin changes colors gradually.
TRANSITIONS = "Promise.all(document.getAnimations().map(animation => animation.finished))"
# Defects of Django's own templates, by rule and a part of the selector. Everything else is ours.
OF_DJANGO = {
    ("button-name", ".theme-toggle"),  # without JavaScript, which shows its icon
    ("label", "#id_expires_"),  # a split date and time, whose label is for the fieldset
    ("label-title-only", "#searchbar"),  # the label of a search field is an image
    ("link-in-text-block", ".breadcrumbs"),
}
INSPECTOR = {"caller": "self", "server": "default", "revision": "2025-11-25"}


@pytest.fixture(scope="module")
def shop(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop with a row of each kind: a token, a session, calls, an approval and a switch."""
    made = Shop(tmp_path_factory.mktemp("accessibility"))
    secret = made.manage("mcp_token", "create", "--user=alice", "--name=laptop").split()
    client = made.connect(next(word for word in secret if word.startswith("mcp_")))
    client.get()
    client.call("opening_hours").tool_text()
    client.call("search_orders", text="A").tool_text()
    waiting = Background(client, "refund", order="A-1", reason="It arrived broken.")
    made.server.until(lambda: "1" in made.manage("shell", "-v0", "-c", COUNT), "No approval.")
    made.manage("shell", "-v0", "-c", SWITCH)
    yield made
    made.close()  # first: the refund would wait for its approval
    waiting.text()
    client.close()


COUNT = "from django_mcp.models import Approval; print(Approval.objects.count())"
SWITCH = (
    "from django_mcp.models import Switch; "
    "Switch.objects.create(server='default', thing='tool:opening_hours', reason='Holidays')"
)
PATHS = (
    "mcp",
    "admin/",
    "admin/django_mcp/",
    "admin/django_mcp/session/control-room/",
    f"admin/django_mcp/inspector/?{urlencode(INSPECTOR)}",
    f"admin/django_mcp/inspector/?{urlencode(INSPECTOR | {'kind': 'tool', 'name': 'refund'})}",
    "admin/django_mcp/auditentry/",
    "admin/django_mcp/auditentry/1/change/",
    "admin/django_mcp/approval/",
    "admin/django_mcp/approval/1/change/",
    "admin/django_mcp/session/",
    "admin/django_mcp/session/1/change/",
    "admin/django_mcp/stream/",
    "admin/django_mcp/stream/1/change/",
    "admin/django_mcp/call/",
    "admin/django_mcp/event/",
    "admin/django_mcp/token/",
    "admin/django_mcp/token/add/",
    "admin/django_mcp/token/1/change/",
    "admin/django_mcp/switch/",
    "admin/django_mcp/switch/add/",
    "admin/django_mcp/switch/1/change/",
    "admin/django_mcp/switch/decisions/",
    "admin/django_mcp_oauth/",
    "admin/django_mcp_oauth/consent/",
    "oauth/connections",
    "oauth/authorize?client_id=unknown",
)


@pytest.fixture(scope="module")
def signed_in_state(chromium: Any, shop: Shop) -> Any:
    """The browser state of the signed-in administrator."""
    with chromium.new_context() as context:
        made = context.new_page()
        made.goto(shop.admin)
        made.get_by_label("Username").fill("root")
        made.get_by_label("Password").fill(PASSWORD)
        made.get_by_role("button", name="Log in").click()
        made.wait_for_url(shop.admin)
        return context.storage_state()


@pytest.fixture
def page(chromium: Any, signed_in_state: Any) -> Iterator[Any]:
    """A page of the administrator."""
    with chromium.new_context(storage_state=signed_in_state) as context:
        context.set_default_timeout(SECONDS * 1000)
        yield context.new_page()


def without_scripts(route: Any) -> None:
    """Answer with the document as a browser without JavaScript shows it.

    axe-core itself needs JavaScript, so it cannot be turned off.
    """
    response = route.fetch()
    text = re.sub(r"<script.*?</script>|</?noscript>", "", response.text(), flags=re.DOTALL)
    route.fulfill(response=response, body=text)


@pytest.mark.parametrize("scripts", [True, False], ids=["script", "no-script"])
@pytest.mark.parametrize("path", PATHS)
def test_axe_finds_nothing(page, shop, path, scripts):
    address = f"{shop.address}/{path}"
    if not scripts:
        page.route(address, without_scripts)
    response = page.goto(address)
    assert response.status < 500 and response.status != 404, path
    page.evaluate(AXE)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.evaluate(TRANSITIONS)
        assert violations(page) == [], scheme


def violations(page: Any) -> list[tuple[str, str, list[str]]]:
    """Return the rule, the HTML and the selector of everything that axe-core finds."""
    return [
        (one["id"], node["html"][:200], node["target"])
        for one in page.evaluate(RUN)
        for node in one["nodes"]
        if not any(one["id"] == rule and part in str(node["target"]) for rule, part in OF_DJANGO)
    ]
