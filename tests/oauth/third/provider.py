"""An OpenID provider elsewhere: over real HTTP, in a thread, with accounts and keys of its own.

It is strict: codes with PKCE once, refresh tokens once. What it gave out and was sent is kept.
"""

from __future__ import annotations

import base64
import hashlib
import html
import secrets
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import jwt

from tests.verifiers.issuer import public, rsa_key, say

CLIENT, SECRET = "shop", "s3cret-of-the-shop"
JSON = dict[str, Any]
Answer = tuple[int, Any, dict[str, str]]
PAGE = '<form method="post"><input name="account"><button>Sign in at {}</button></form>'


class Provider:
    """``with Provider("company") as provider:``"""

    def __init__(self, label: str) -> None:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider._answer(self, "")

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"] or 0)
                provider._answer(self, self.rfile.read(length).decode())

            def log_message(self, *arguments: Any) -> None:
                """Log nothing."""

        self.label = label
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.name = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.gone: set[str] = set()  # accounts that were disabled
        self.broken = False
        self.asked: Counter[str] = Counter()  # by path
        self.received: list[str] = []  # all of every request
        self.queries: list[dict[str, str]] = []  # of authorization requests
        self.codes: dict[str, JSON] = {}
        self.access: dict[str, str] = {}  # tokens, and whose they are
        self.refresh: dict[str, str] = {}
        self.given: list[str] = []  # every code and token that there ever was
        self._key = rsa_key()

    def __enter__(self) -> Provider:
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def expire(self) -> None:
        """Expire all issued access tokens, but no refresh tokens."""
        self.access.clear()

    # What it answers.

    def _answer(self, handler: BaseHTTPRequestHandler, body: str) -> None:
        url = urlsplit(handler.path)
        self.asked[url.path] += 1
        self.received.append(unquote(f"{handler.path} {handler.headers} {body}"))
        endpoints = {
            "/.well-known/openid-configuration": self._metadata, "/keys": self._keys,
            "/authorize": self._authorize, "/token": self._token, "/userinfo": self._userinfo,
        }  # fmt: skip
        form = dict(parse_qsl(body))
        if self.broken:
            say(handler, 503, {})
            return
        status, document, headers = endpoints[url.path](handler, dict(parse_qsl(url.query)), form)
        say(handler, status, document, **headers)

    def _metadata(self, *request: Any) -> Answer:
        endpoints = {
            "authorization_endpoint": "authorize", "token_endpoint": "token",
            "userinfo_endpoint": "userinfo", "jwks_uri": "keys",
        }  # fmt: skip
        named = {key: f"{self.name}/{path}" for key, path in endpoints.items()}
        methods = {"token_endpoint_auth_methods_supported": ["client_secret_basic"]}
        return 200, {"issuer": self.name, **named, **methods}, {}

    def _keys(self, *request: Any) -> Answer:
        return 200, {"keys": [public(self._key, kid="one")]}, {}

    def _authorize(self, handler: Any, query: JSON, form: JSON) -> Answer:
        """The login page, and the redirect after an account name was entered."""
        assert query["client_id"] == CLIENT and query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256" and query["state"]
        if handler.command == "GET":
            self.queries.append(query)
            page = PAGE.format(html.escape(self.label)).encode()
            return 200, page, {"Content_Type": "text/html"}
        code = self._new()
        self.codes[code] = query | {"sub": form["account"]}
        back = urlencode({"code": code, "state": query["state"]})
        return 302, b"", {"Location": f"{query['redirect_uri']}?{back}"}

    def _token(self, handler: Any, query: JSON, form: JSON) -> Answer:
        known = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if handler.headers["Authorization"] != f"Basic {known}":
            return 401, {"error": "invalid_client"}, {}
        grants = {"authorization_code": self._redeemed, "refresh_token": self._refreshed}
        sub = grants[form["grant_type"]](form)
        if sub is None or sub in self.gone:
            return 400, {"error": "invalid_grant"}, {}
        access, refresh = self._new(), self._new()
        self.access[access], self.refresh[refresh] = sub, sub
        told = {"access_token": access, "refresh_token": refresh, "token_type": "Bearer"}
        return 200, told | {"expires_in": 3600, "id_token": self._id_token(sub)}, {}

    def _redeemed(self, form: JSON) -> str | None:
        asked = self.codes.pop(form["code"], None)
        if asked is None or form["redirect_uri"] != asked["redirect_uri"]:
            return None
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        shown = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        return str(asked["sub"]) if shown == asked["code_challenge"] else None

    def _refreshed(self, form: JSON) -> str | None:
        return self.refresh.pop(form["refresh_token"], None)

    def _userinfo(self, handler: Any, query: JSON, form: JSON) -> Answer:
        sub = self.access.get(handler.headers["Authorization"].removeprefix("Bearer "))
        if sub is None or sub in self.gone:
            return 401, {"error": "invalid_token"}, {}
        return 200, self._claims(sub), {}

    def _claims(self, sub: str) -> JSON:
        return {"sub": sub, "preferred_username": f"{sub}-{self.label}"}

    def _id_token(self, sub: str) -> str:
        now = int(time.time())
        said = {"iss": self.name, "aud": CLIENT, "iat": now, "exp": now + 600}
        token = jwt.encode(self._claims(sub) | said, self._key, "RS256", {"kid": "one"})
        self.given.append(token)
        return token

    def _new(self) -> str:
        self.given.append(secrets.token_urlsafe(24))
        return self.given[-1]
