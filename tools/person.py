"""A person whom a program sends to an authorization server: signs in, and agrees.

The rule: standard library alone. What a browser would keep and send is kept and sent: cookies, and
every field of a form. It goes by the names of fields, and knows nothing else of the pages.
"""

import urllib.error
import urllib.request
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from typing import Any
from urllib.parse import urlencode

PATIENCE = 30  # seconds for a page
PAGES = 5  # a login and a consent are two; who is sent further goes in circles


class Lost(Exception):
    """The pages did not lead back to the program."""


class Person:
    """Who has an account, and a browser of their own that is signed in nowhere yet."""

    def __init__(self, name: str, password: str) -> None:
        self.says = {"username": name, "password": password, "allow": "true"}
        cookies = urllib.request.HTTPCookieProcessor(CookieJar())
        self._web = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)

    def agree(self, url: str, callback: str) -> None:
        """Go to `url`, and let the program act; ends at its `callback`. Raises ``Lost``."""
        place, page = self._get(url)
        for _ in range(PAGES):
            if place.partition("?")[0] == callback:
                return
            place, page = self._get(place, self._filled(page))
        raise Lost(f"No page led to {callback}; the last was {nameless(place)}")

    def _filled(self, page: str) -> dict[str, str]:
        """The first form that asks what this person has to say."""
        for form in Forms(page).found:
            if known := form.keys() & self.says.keys():
                return form | {name: self.says[name] for name in known}
        raise Lost(f"Nothing is asked on this page:\n{page[:2000]}")

    def _get(self, url: str, form: dict[str, str] | None = None) -> tuple[str, str]:
        """The page that this leads to, and where it is. A form is sent to its own page."""
        sent = None if form is None else urlencode(form).encode()
        try:
            with self._web.open(url, sent, timeout=PATIENCE) as response:
                return response.url, response.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode("utf-8", "replace")
            raise Lost(f"{error.code} at {nameless(error.url)}:\n{said[:2000]}") from None


def nameless(url: str | None) -> str:
    """A URL without its query, in which a code may be."""
    return str(url).partition("?")[0]


class Forms(HTMLParser):
    """The forms of a page: names and values, of each name the first."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        given = dict(attrs)
        if tag == "form":
            self.found.append({})
        elif tag in ("input", "button") and self.found and given.get("name"):
            self.found[-1].setdefault(given["name"], given.get("value") or "")
