"""Registrations and metadata documents of real clients, and a local web server for the documents.

Nothing here was recorded. VS Code's are written after its source, and those of Claude, ChatGPT,
Cursor and the MCP Inspector after public reports and pages. The ids, URLs, redirect URIs, grants
and authentication methods are known. Other names and links are invented, as is the ``Xa9`` of
ChatGPT's app.
"""

from __future__ import annotations

import datetime
import json
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.contrib.auth.hashers import BasePasswordHasher
from django.core.cache import cache
from django.test import override_settings
from django.utils import timezone
from jwcrypto import jwk, jwt
from oauth2_provider.models import get_application_model, get_grant_model

from django_mcp.oauth import dot_settings
from django_mcp.oauth.client_metadata_documents import MCPMetadataFetcher

from .conftest import CHALLENGE, URL, VERIFIER

CODE, REFRESH = "authorization_code", "refresh_token"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
PUBLIC_ADDRESS = "93.184.216.34"

# Registration requests. Cursor has these three redirect URIs and the type "web". VS Code has four,
# on two sites and on this machine with and without its port, and the type "native". ChatGPT does
# not ask for client credentials. The Inspector is a page at port 6274. Claude Code usually has a
# metadata document and listens on a free port: its registration is a guess.

REGISTRATIONS: dict[str, dict[str, Any]] = {
    "Claude Code": {
        "client_name": "Claude Code (shop)",
        "redirect_uris": ["http://localhost:54212/callback"],
        "grant_types": [CODE, REFRESH],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    },
    "Cursor": {
        "client_name": "Cursor",
        "redirect_uris": [
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "https://www.cursor.com/agents/mcp/oauth/callback",
            "http://localhost:8787/callback",
        ],
        "grant_types": [CODE, REFRESH],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
    },
    "VS Code": {
        "client_name": "Visual Studio Code",
        "client_uri": "https://code.visualstudio.com",
        "redirect_uris": [
            "https://insiders.vscode.dev/redirect",
            "https://vscode.dev/redirect",
            "http://127.0.0.1/",
            "http://127.0.0.1:33418/",
        ],
        "grant_types": [CODE, REFRESH],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    },
    "ChatGPT": {
        "client_name": "ChatGPT",
        "redirect_uris": ["https://chatgpt.com/connector/oauth/Xa9"],
        "grant_types": [CODE, REFRESH],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    },
    "MCP Inspector": {
        "client_name": "MCP Inspector",
        "client_uri": "https://github.com/modelcontextprotocol/inspector",
        "redirect_uris": ["http://localhost:6274/oauth/callback"],
        "grant_types": [CODE, REFRESH],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "scope": "",
    },
}

# Metadata documents. Claude.ai lists the JWT bearer grant and has a redirect URI at each of its
# sites. Claude Code has redirect URIs without a port. VS Code lists the device grant. ChatGPT has a
# document for each app, and authenticates by keys (RS256).

CLAUDE_AI = "https://claude.ai/oauth/mcp-oauth-client-metadata"
CLAUDE_CODE = "https://claude.ai/oauth/claude-code-client-metadata"
VS_CODE = "https://vscode.dev/oauth/client-metadata.json"
CHATGPT = "https://chatgpt.com/oauth/Xa9/client.json"
JWKS = "https://chatgpt.com/oauth/jwks.json"
DOCUMENTS: dict[str, dict[str, Any]] = {
    CLAUDE_AI: {
        "client_id": CLAUDE_AI,
        "client_name": "Claude",
        "client_uri": "https://claude.ai",
        "redirect_uris": [
            "https://claude.ai/api/mcp/auth_callback",
            "https://claude.com/api/mcp/auth_callback",
        ],
        "grant_types": [CODE, REFRESH, JWT_BEARER],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    },
    CLAUDE_CODE: {
        "client_id": CLAUDE_CODE,
        "client_name": "Claude Code",
        "client_uri": "https://claude.ai",
        "redirect_uris": ["http://localhost/callback", "http://127.0.0.1/callback"],
        "grant_types": [CODE, REFRESH],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    },
    VS_CODE: {
        "client_id": VS_CODE,
        "client_name": "Visual Studio Code",
        "client_uri": "https://vscode.dev/product",
        "redirect_uris": [
            "http://127.0.0.1:33418/",
            "https://vscode.dev/redirect",
            "https://insiders.vscode.dev/redirect",
        ],
        "grant_types": [CODE, REFRESH, DEVICE],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    },
    CHATGPT: {
        "client_id": CHATGPT,
        "client_name": "ChatGPT",
        "redirect_uris": ["https://chatgpt.com/connector/oauth/Xa9"],
        "grant_types": [CODE, REFRESH],
        "response_types": ["code"],
        "token_endpoint_auth_method": "private_key_jwt",
        "token_endpoint_auth_signing_alg": "RS256",
        "jwks_uri": JWKS,
    },
}


class Untouchable(BasePasswordHasher):
    """A hasher that fails the test when it is used."""

    algorithm = "untouchable"

    def encode(self, password, salt):
        raise AssertionError("Something was hashed.")


def toolkit(**over: Any) -> override_settings:
    """Return a context manager that overrides ``OAUTH2_PROVIDER``."""
    ours = {
        "CIMD_METADATA_FETCHER": "tests.oauth.clients.Fetcher",
        "ALWAYS_RELOAD_OAUTHLIB_CORE": True,
    }
    return override_settings(OAUTH2_PROVIDER=dot_settings(URL, **(ours | over)))


@pytest.fixture
def our_toolkit():
    cache.clear()
    with toolkit():
        yield
    cache.clear()


def register(web, body: Any, **extra: Any) -> Any:
    data = body if isinstance(body, bytes | str) else json.dumps(body)
    return web.post("/oauth/register", data, content_type="application/json", **extra)


def authorize(web, client_id: str, redirect_uri: str) -> Any:
    asked = {
        "client_id": client_id, "redirect_uri": redirect_uri, "response_type": "code",
        "scope": "mcp", "code_challenge": CHALLENGE, "code_challenge_method": "S256",
    }  # fmt: skip
    return web.get("/oauth/authorize?" + urlencode(asked))


def granted(client_id: str, user: Any, redirect_uri: str = "") -> dict[str, str]:
    """Return the parameters of a token request, without those that authenticate the client."""
    application = get_application_model().objects.get(client_id=client_id)
    redirect_uri = redirect_uri or application.redirect_uris.split()[0]
    grant = get_grant_model().objects.create(
        user=user, application=application, code=jwk.JWK.generate(kty="oct", size=128).thumbprint(),
        expires=timezone.now() + datetime.timedelta(seconds=60), redirect_uri=redirect_uri,
        scope="mcp", code_challenge=CHALLENGE, code_challenge_method="S256",
    )  # fmt: skip
    return {
        "grant_type": CODE, "code": grant.code, "redirect_uri": redirect_uri,
        "code_verifier": VERIFIER,
    }  # fmt: skip


# A web on this machine: names that everybody can reach, with certificates, and one server.


class Fetcher(MCPMetadataFetcher):
    """Connects to the server of the test, whatever the address is."""

    port = 0
    lines: list[tuple[str, int]] = []

    def connect(self, address, port, seconds):
        self.lines.append((address, port))
        line = socket.socket()
        line.settimeout(seconds)
        try:
            line.connect(("127.0.0.1", self.port))
        except OSError:
            line.close()
            raise
        return line


NAMES = ["claude.ai", "vscode.dev", "chatgpt.com", "app.example", "*.app.example"]


class Web:
    """Documents by URL, and the requests for them. A callable writes the response itself."""

    def __init__(self, certificate: str) -> None:
        self.documents: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.asked: list[str] = []
        self.names: dict[str, list[str]] = {}
        self.lookups: list[str] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def getaddrinfo(self, host, port, *args, **kwargs):
        self.lookups.append(host)
        found = self.names.get(host, [PUBLIC_ADDRESS])
        if isinstance(found, Exception):
            raise found
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in found]

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(10)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._socket.accept()
                self._threads.append(threading.Thread(target=self._answer, args=[line]))
                self._threads[-1].start()

    def _answer(self, line: socket.socket) -> None:
        with line, suppress(OSError), self._context.wrap_socket(line, server_side=True) as secure:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (more := secure.recv(4096)):
                    return
                head += more
            lines = head.decode().split("\r\n")
            host = next(one[6:] for one in lines if one.lower().startswith("host: "))
            url = f"https://{host}{lines[0].split()[1]}"
            self.asked.append(url)
            self._write(secure, self.documents.get(url))

    def _write(self, secure: ssl.SSLSocket, document: Any) -> None:
        if callable(document):
            document(secure)
            return
        status = "404 Not Found" if document is None else "200 OK"
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        headers = {"Content-Type": "application/json", "Content-Length": len(body), **self.headers}
        told = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        secure.sendall(f"HTTP/1.1 {status}\r\n{told}\r\n".encode() + body)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A self-signed certificate for all host names of the tests."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the test")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    names = x509.SubjectAlternativeName([x509.DNSName(one) for one in NAMES])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
        .public_key(key.public_key()).not_valid_before(now - day).not_valid_after(now + day)
        .add_extension(names, False).add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path_factory.mktemp("certificate") / "all.pem"
    path.write_bytes(made.public_bytes(pem) + private)
    return str(path)


@pytest.fixture
def internet(certificate, monkeypatch, our_toolkit):
    """A web server for the documents of real clients, which all look-ups lead to."""
    made = Web(certificate)
    made.documents |= json.loads(json.dumps(DOCUMENTS))
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    monkeypatch.setattr("oauth2_provider.cimd.socket.getaddrinfo", made.getaddrinfo)
    monkeypatch.setattr(Fetcher, "port", made.port)
    monkeypatch.setattr(Fetcher, "lines", [])
    yield made
    monkeypatch.undo()
    made.close()


# Keys.


def keys(*some: jwk.JWK) -> dict[str, Any]:
    """Return a document of public keys."""
    return {"keys": [one.export_public(as_dict=True) for one in some]}


def assertion(key: jwk.JWK, algorithm: str = "RS256", header: Any = (), **over: Any) -> str:
    """Return an assertion of ChatGPT for the shop, valid for a minute. None omits a claim."""
    now = int(time.time())
    claims = {
        "iss": CHATGPT, "sub": CHATGPT, "aud": URL, "iat": now, "exp": now + 60,
        "jti": jwk.JWK.generate(kty="oct", size=128).thumbprint(),
    } | over  # fmt: skip
    head = {"alg": algorithm, "kid": key.get("kid")} | dict(header)
    made = jwt.JWT(
        header={name: value for name, value in head.items() if value is not None},
        claims={name: value for name, value in claims.items() if value is not None},
        algs=[algorithm],
    )
    made.make_signed_token(key)
    return str(made.serialize())
