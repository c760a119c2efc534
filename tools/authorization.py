"""The suite's scenarios for an authorization server: a client that registers, a person who agrees.

The rule: standard library alone. The suite prints the address to which its client sends a person,
and waits at the callback until that person comes.
"""

import json
import os
import secrets
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from tools import suite
from tools.person import Lost, Person
from tools.scenarios import Verdict, read
from tools.serving import HOST, free_port

WELL_KNOWN = "/.well-known/oauth-authorization-server"
PATIENCE = 30  # seconds for an answer
# Whose account it is: made for the run, where the server is.
ACCOUNT = {
    "CONFORMANCE_USER": os.environ.get("CONFORMANCE_USER") or "alice",
    "CONFORMANCE_PASSWORD": os.environ.get("CONFORMANCE_PASSWORD") or secrets.token_urlsafe(),
}


def run_set(name: str, url: str, results: Path) -> Verdict:
    """Run them against the issuer that has the origin of `url`, for tokens of that very server."""
    issuer, port = "{0.scheme}://{0.netloc}".format(urlsplit(url)), free_port()
    callback = f"http://{HOST}:{port}/callback"
    person = Person(*ACCOUNT.values())

    def hear(line: str) -> None:
        if line.startswith(("http://", "https://")):
            person.agree(line.strip(), callback)

    try:
        given = ("--client-id", registered(issuer, callback), "--port", str(port))
        wanted = ("authorization", "--url", issuer, "--resource", url)
        return suite.run(name, (*wanted, *given), results, hear)
    except (Lost, OSError) as problem:  # an HTTPError is an OSError
        print(f"{name}: {problem}", flush=True)
        return read(name, results) if results.exists() else Verdict(name, {})


def registered(issuer: str, callback: str) -> str:
    """The id of a client without a secret, that registers itself (RFC 7591)."""
    said = {
        "client_name": "The conformance suite",
        "redirect_uris": [callback],
        "token_endpoint_auth_method": "none",
    }
    metadata = answer(issuer + WELL_KNOWN)
    return str(answer(metadata["registration_endpoint"], said)["client_id"])


def answer(url: str, said: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON that is there, or that comes of what is said."""
    body = None if said is None else json.dumps(said).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    web = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with web.open(request, timeout=PATIENCE) as response:
            found: dict[str, Any] = json.load(response)
    except HTTPError as error:
        error.close()  # it holds the connection open
        raise
    return found
