"""Run the conformance suite's scenarios for an authorization server, with a scripted user.

The suite prints the authorization URL and waits for the redirect to its callback. This module uses
only the standard library.
"""

import json
import os
import secrets
import urllib.error
import urllib.request
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit

from tools import conformance_suite
from tools.conformance_results import SetResult, read
from tools.ports import free_port
from tools.serving import HOST

WELL_KNOWN = "/.well-known/oauth-authorization-server"
TIMEOUT_SECONDS = 30  # of one HTTP request
MAX_PAGES = 5  # a login and a consent are two; more is a redirect loop
# The server creates this account for the run.
ACCOUNT = {
    "CONFORMANCE_USER": os.environ.get("CONFORMANCE_USER") or "alice",
    "CONFORMANCE_PASSWORD": os.environ.get("CONFORMANCE_PASSWORD") or secrets.token_urlsafe(),
}


def run_set(name: str, url: str, results: Path) -> SetResult:
    """Run the scenarios against the issuer at the origin of `url`, for tokens of that server."""
    issuer, port = "{0.scheme}://{0.netloc}".format(urlsplit(url)), free_port()
    callback = f"http://{HOST}:{port}/callback"
    person = ScriptedUser(*ACCOUNT.values())

    def on_line(line: str) -> None:
        if line.startswith(("http://", "https://")):
            person.agree(line.strip(), callback)

    try:
        given = ("--client-id", registered(issuer, callback), "--port", str(port))
        wanted = ("authorization", "--url", issuer, "--resource", url)
        return conformance_suite.run(name, (*wanted, *given), results, on_line)
    except (SignInFailed, OSError) as problem:  # an HTTPError is an OSError
        print(f"{name}: {problem}", flush=True)
        return read(name, results) if results.exists() else SetResult(name, {})


def registered(issuer: str, callback: str) -> str:
    """Register a public client (RFC 7591) and return its id."""
    metadata_of_client = {
        "client_name": "The conformance suite",
        "redirect_uris": [callback],
        "token_endpoint_auth_method": "none",
    }
    metadata = answer(issuer + WELL_KNOWN)
    return str(answer(metadata["registration_endpoint"], metadata_of_client)["client_id"])


def answer(url: str, fields: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON of a GET, or of a POST if ``fields`` is given."""
    body = None if fields is None else json.dumps(fields).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    web = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with web.open(request, timeout=TIMEOUT_SECONDS) as response:
            found: dict[str, Any] = json.load(response)
    except HTTPError as error:
        error.close()  # it holds the connection open
        raise
    return found


class SignInFailed(Exception):
    """The pages did not redirect to the client."""


class ScriptedUser:
    """A user who signs in and consents, with cookies like a browser.

    It fills in forms by the names of their fields.
    """

    def __init__(self, name: str, password: str) -> None:
        self.says = {"username": name, "password": password, "allow": "true"}
        cookies = urllib.request.HTTPCookieProcessor(CookieJar())
        self._web = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)

    def agree(self, url: str, callback: str) -> None:
        """Sign in at `url` and consent, until redirected to `callback`. Raise ``SignInFailed``."""
        place, page = self._get(url)
        for _ in range(MAX_PAGES):
            if place.partition("?")[0] == callback:
                return
            place, page = self._get(place, self._filled(page))
        raise SignInFailed(f"No page led to {callback}; the last was {without_query(place)}")

    def _filled(self, page: str) -> dict[str, str]:
        """Return the first form with a field that this user fills in."""
        for form in Forms(page).found:
            if known := form.keys() & self.says.keys():
                return form | {name: self.says[name] for name in known}
        raise SignInFailed(f"This page has no form to fill in:\n{page[:2000]}")

    def _get(self, url: str, form: dict[str, str] | None = None) -> tuple[str, str]:
        """Return the final URL and the page, after redirects. With ``form``, send a POST."""
        sent = None if form is None else urlencode(form).encode()
        try:
            with self._web.open(url, sent, timeout=TIMEOUT_SECONDS) as response:
                return response.url, response.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            with error:
                body = error.read().decode("utf-8", "replace")
            raise SignInFailed(
                f"{error.code} at {without_query(error.url)}:\n{body[:2000]}"
            ) from None


def without_query(url: str | None) -> str:
    """Return a URL without its query, which may contain an authorization code."""
    return str(url).partition("?")[0]


class Forms(HTMLParser):
    """The forms of a page: values by name. The first value of a name counts."""

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
