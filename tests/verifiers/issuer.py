"""An authorization server over real HTTP, in a thread, with its own keys.

It counts the requests, and fails as a test wants.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

JSON = dict[str, Any]
HOUR = 3600
CLIENT, SECRET = "the shop", "s3cret: of the shop"


@cache
def rsa_key(bits: int = 2048, number: int = 0) -> Any:
    """Return a key, which is made only once because that is slow."""
    return rsa.generate_private_key(65537, bits)


MAKE: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), rsa_key),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "ES512": lambda: ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}  # fmt: skip


def public(key: Any, algorithm: str = "RS256", **said: Any) -> JSON:
    """Return the public key of a private key, as a JWK."""
    whole = get_default_algorithms()[algorithm]
    found: JSON = whole.to_jwk(key.public_key(), as_dict=True)  # type: ignore[attr-defined]
    return {**found, "use": "sig", **said}


class Issuer:
    """An authorization server in a thread: ``with Issuer() as issuer:``."""

    def __init__(self) -> None:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer._answer(self, "")

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                issuer._answer(self, self.rfile.read(length).decode())

            def do_CONNECT(self) -> None:
                issuer._answer(self, "")

            def log_message(self, *arguments: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.name = f"http://127.0.0.1:{self.port}"
        self.asked: Counter[str] = Counter()  # by path
        self.forms: list[dict[str, str]] = []
        self.authorizations: list[str | None] = []
        self.paths: list[str] = []
        self.metadata: JSON = {
            "issuer": self.name, "jwks_uri": f"{self.name}/keys",
            "introspection_endpoint": f"{self.name}/introspect",
        }  # fmt: skip
        self.keys: list[Any] = []
        self.tokens: dict[str, JSON] = {}  # what an introspection tells
        self.behave: Callable[[BaseHTTPRequestHandler, str], bool] = lambda handler, path: False
        self.gate = threading.Event()
        self.gate.set()
        self.private = rsa_key()
        self.publish(public(self.private, kid="one"))

    def __enter__(self) -> Issuer:
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self.gate.set()
        self.down()

    def down(self) -> None:
        """Close the port of the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def publish(self, *keys: Any) -> None:
        self.keys = list(keys)

    def _answer(self, handler: BaseHTTPRequestHandler, body: str) -> None:
        self.asked[handler.path] += 1
        self.paths.append(handler.path)
        self.authorizations.append(handler.headers["Authorization"])
        self.gate.wait(30)
        if self.behave(handler, handler.path):
            return
        documents: dict[str, Callable[[], JSON]] = {
            "/.well-known/openid-configuration": lambda: self.metadata,
            "/keys": lambda: {"keys": self.keys},
            "/introspect": lambda: self._introspected(body),
        }
        found = documents.get(handler.path)
        say(handler, 404 if found is None else 200, {} if found is None else found())

    def _introspected(self, body: str) -> JSON:
        form = {name: values[0] for name, values in parse_qs(body, strict_parsing=True).items()}
        self.forms.append(form)
        return self.tokens.get(form["token"], {"active": False})

    # Tokens.

    def claims(self, aud: Any, **more: Any) -> JSON:
        now = int(time.time())
        said = {
            "iss": self.name, "sub": "alice", "aud": aud, "exp": now + HOUR, "iat": now,
            "client_id": "agent", "scope": "mcp", "jti": "1", **more,
        }  # fmt: skip
        return {name: value for name, value in said.items() if value is not None}

    def token(
        self, aud: Any, *, key: Any = None, algorithm: str = "RS256", header: JSON | None = None,
        **more: Any,
    ) -> str:  # fmt: skip
        headers = {"kid": "one", "typ": "at+jwt"} if header is None else header
        return jwt.encode(self.claims(aud, **more), key or self.private, algorithm, headers)

    def opaque(self, name: str, aud: Any, **more: Any) -> str:
        """Return an opaque token, which only the issuer can read."""
        self.tokens[name] = {"active": True, **self.claims(aud, **more)}
        return name


def say(handler: BaseHTTPRequestHandler, status: int, document: Any, **headers: str) -> bool:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    handler.send_response(status)
    for name, value in ({"Content_Type": "application/json"} | headers).items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    try:
        handler.wfile.write(body)
    except OSError:  # who asked has gone
        return True
    return True


def unsigned(header: JSON, claims: JSON, signature: bytes = b"") -> str:
    """Return a token with these parts and no valid signature."""
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
