"""
Checks of ``mcp_doctor`` on a running server, by HTTP requests as each kind of client sends them.

``LiveChecks`` discovers, lists and pings. It calls no tool, changes nothing, and ends the session
that it starts. The token is sent to the given URL only, and never without TLS, except to this
machine.

``legacy_sse`` opens an HTTP+SSE stream, if the server has that on, and checks that the URL in the
stream's first event leads back to the stream.

``client_addresses`` checks which client address the server sees through a proxy, because rate
limits count by it. It sends a false address in the headers that proxies use, and compares the
address that the server reports (``address_probe``) with that of this machine on the connection.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import urljoin, urlsplit

from ...protocol import http_rules
from ...protocol.jsonrpc import HEADER_MISMATCH
from ...runtime import address_probe
from ...runtime.address_probe import SeenAddress
from .findings import (
    DISCOVER,
    INITIALIZE,
    SESSIONS,
    Finding,
    Findings,
    ProbeClient,
    ProbeResponse,
    Unreachable,
    count_tools,
    error,
    is_response,
    json_headers,
    note,
    ok,
    problem,
    request,
    result,
    stateless_headers,
    stateless_request,
    warning,
)
from .installation import MOUNT, is_local

ENDPOINT_EVENT = re.compile(rb"\Aevent: endpoint\r?\n(?:.*\r?\n)*?data: (/[!-~]*)\r?\n")
PATH_HINT = (
    "Let the proxy forward the path and the query unchanged. If it removes a prefix of the path, "
    "set FORCE_SCRIPT_NAME, or the root path of the ASGI server."
)


def legacy_sse(checks: LiveChecks) -> Findings:
    """Check HTTP+SSE, which clients of the first revision need."""
    try:
        answer = checks.client.ask(
            "GET", checks.with_token({"Accept": http_rules.SSE_TYPE}, {}), first=True
        )
    except Unreachable:
        return  # ``sessions`` reports why streams do not work
    if answer.status == 200 and answer.kind == http_rules.SSE_TYPE:
        yield _check_post_url(checks, answer)


def _check_post_url(checks: LiveChecks, answer: ProbeResponse) -> Finding:
    match = ENDPOINT_EVENT.match(answer.body)
    if match is None:
        return problem(
            "An HTTP+SSE stream does not begin with the URL for POST requests.", PATH_HINT
        )
    address = match[1].decode("ascii")
    path = address.partition("?")[0]
    posted = checks.client.ask(
        "POST", checks.with_token(json_headers(), {}), request("ping"), path=address
    )
    checks.client.ask("DELETE", checks.with_token({}, {}), path=address)
    if posted.status == 202:
        return ok(f"HTTP+SSE is on, for clients that support nothing newer. They post to {path}.")
    words = f"HTTP+SSE names {path} for POST requests, which are answered by {posted.status}."
    return problem(words, PATH_HINT)


FORGED = "192.0.2.123"  # RFC 5737: an address for documentation, which no client has
# Servers trust a proxy at 127.0.0.1 by default. So the request comes from another loopback address.
# Linux has all of 127.0.0.0/8.
LOCAL, SECOND_LOCAL = "127.0.0.1", "127.0.0.2"
METADATA = "/.well-known/oauth-authorization-server"
SET_HEADER = "In nginx: proxy_set_header X-Forwarded-For $remote_addr;"
TRUST_PROXY = (
    "Let the server trust the proxy: FORWARDED_ALLOW_IPS=ADDRESS in the environment of uvicorn or "
    "gunicorn, --proxy-headers of daphne."
)


def client_addresses(checks: LiveChecks) -> Findings:
    """Check the MCP endpoint and, if clients may register themselves, the registration endpoint."""
    client = _with_distinct_address(checks.client)
    if client is None:
        yield note("The client address cannot be checked from this machine.")
        return
    yield _check_address(client, "The MCP endpoint", stateless_headers(), DISCOVER, None)
    if path := _registration_path(client):
        headers = {"Content-Type": "application/json"}  # an empty body registers nothing
        yield _check_address(client, "The registration endpoint", headers, b"{}", path)


def _with_distinct_address(client: ProbeClient) -> ProbeClient | None:
    """Return a client with an address that no proxy has; None if this machine has none."""
    if client.own_address() != LOCAL:
        return client if client.own_address() != "::1" else None
    try:
        with socket.socket() as probe:
            probe.bind((SECOND_LOCAL, 0))
    except OSError:
        return None
    return ProbeClient(client.url, client.seconds, source=SECOND_LOCAL)


def _registration_path(client: ProbeClient) -> str:
    try:
        answer = client.ask("GET", {}, path=METADATA)
        found = json.loads(answer.body)["registration_endpoint"] if answer.status == 200 else ""
        return urlsplit(found).path
    except (Unreachable, ValueError, TypeError, KeyError, AttributeError):
        return ""


def _check_address(
    client: ProbeClient, what: str, headers: Mapping[str, str], body: bytes, path: str | None
) -> Finding:
    claimed = {
        address_probe.REQUEST_HEADER: address_probe.signed_probe(),
        "X-Forwarded-For": FORGED, "X-Real-IP": FORGED, "Forwarded": f"for={FORGED}",
    }  # fmt: skip
    answer: ProbeResponse = client.ask("POST", {**headers, **claimed}, body, path=path)
    seen = address_probe.read_response(answer.headers.get(address_probe.RESPONSE_HEADER))
    if seen is None:
        return note(
            f"{what} does not report which client address it sees.",
            "It needs the same SECRET_KEY: run mcp_doctor with the settings of the server.",
        )
    return address_finding(what, seen, answer.own_address)


def address_finding(what: str, seen: SeenAddress, own: str) -> Finding:
    hops = [hop.strip() for hop in seen.forwarded.split(",") if hop.strip()]
    if seen.client == FORGED:
        return problem(
            f"{what} believes any client that sends X-Forwarded-For: clients evade rate limits.",
            f"Let the proxy replace the header instead of forwarding it. {SET_HEADER}",
        )
    if seen.client == own or seen.client in hops:
        return ok(f"{what} sees the client's address, {seen.client}.")
    if any(hop != FORGED for hop in hops):
        return problem(
            f"{what} sees the proxy's address, {seen.client}, for every client: all of them share "
            "one rate limit.",
            TRUST_PROXY.replace("ADDRESS", seen.client),
        )
    if _is_global(seen.client) and not _is_global(own):
        return warning(
            f"{what} sees the address {seen.client}: this machine's public address, or a proxy's.",
            f"If it is a proxy's: {SET_HEADER} {TRUST_PROXY.replace('ADDRESS', seen.client)}",
        )
    return problem(
        f"{what} sees the address {seen.client} for every client: the proxy does not forward the "
        "client's address.",
        f"{SET_HEADER} {TRUST_PROXY.replace('ADDRESS', seen.client)}",
    )


def _is_global(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return False


NO_TOKEN = "mcp_" + "0" * 43  # well-formed but invalid
OTHER_ORIGIN = "https://elsewhere.invalid"  # RFC 6761: a name that nobody has
BODY_LIMIT_SECONDS = 3.0  # seconds within which a request that is too large must be rejected
HUGE_BODY_BYTES = 10**12  # more than any limit
SLOW_SECONDS = 2.0  # seconds after which a response is reported as slow
HEADER_HINT = "Let the proxy forward the header {name}: see its documentation."
LOST_TOKEN = "The header Authorization does not arrive: requests with a token are anonymous."
TOKEN_HINT = "For more checks, use --token TOKEN, or DJANGO_MCP_TOKEN in the environment."
BUFFERING_HINT = (
    "A proxy buffers responses: turn its buffering off for this path (nginx: proxy_buffering off), "
    "and the compression of text/event-stream too."
)


class LiveChecks:
    """The checks of one URL, with a token or anonymously. ``seconds`` limits each request."""

    def __init__(self, url: str, token: str | None, seconds: float) -> None:
        self.client = ProbeClient(url, seconds)
        self.token = token
        self.further: tuple[LiveCheck, ...] = ()  # the checks that apply, set by ``first_request``

    def findings(self) -> Findings:
        """Yield the findings. Later checks depend on the first one, ``first_request``."""
        try:
            yield from self._label("the address", first_request)
        except Unreachable as unreachable:
            yield problem(str(unreachable), unreachable.hint)
            return
        for part, check in self.further:
            try:
                yield from self._label(part, check)
            except Unreachable as unreachable:
                yield Finding("problem", str(unreachable), unreachable.hint, part)

    def _label(self, part: str, check: Callable[[LiveChecks], Findings]) -> Findings:
        for one in check(self):
            yield Finding(one.level, one.words, one.hint, part)

    def newest(self, method: str = "server/discover", **more: str | None) -> ProbeResponse:
        """Send a request of the newest revision. ``more`` are headers; None removes one."""
        return self.post(stateless_request(method), stateless_headers(method), more)

    def post(
        self, body: bytes, headers: Mapping[str, str], more: Mapping[str, str | None] | None = None
    ) -> ProbeResponse:
        return self.client.ask("POST", self.with_token(headers, more or {}), body)

    def with_token(
        self, headers: Mapping[str, str], more: Mapping[str, str | None]
    ) -> dict[str, str]:
        token = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        merged = {**headers, **token, **more}
        return {name: value for name, value in merged.items() if value is not None}


def first_request(checks: LiveChecks) -> Findings:
    """Check that an MCP server answers and accepts the token. Choose the further checks."""
    if checks.token and _is_unencrypted(checks):
        checks.token = None
        yield warning(
            "The token is not sent, because the URL does not use https.",
            "Serve the project over https.",
        )
    answer = checks.newest()
    if "supportedVersions" in result(answer.body):
        checks.further = AUTHORIZED_CHECKS + ANONYMOUS_CHECKS
        yield answer_finding(answer)
    elif answer.status == 401 and is_response(answer.body):
        checks.further = ANONYMOUS_CHECKS
        yield token_finding(checks, answer)
    else:
        yield unexpected_response(checks, answer)


def answer_finding(answer: ProbeResponse) -> Finding:
    words = f"An MCP server answers in {answer.seconds * 1000:.0f} ms."
    if answer.seconds < SLOW_SECONDS:
        return ok(words)
    return warning(words, "The worker may be busy: look at its load.")


def _is_unencrypted(checks: LiveChecks) -> bool:
    parts = checks.client.parts
    return parts.scheme != "https" and not is_local(parts.hostname or "")


def token_finding(checks: LiveChecks, answer: ProbeResponse) -> Finding:
    if checks.token is None:
        return note("An MCP server answers, and asks for a token.", TOKEN_HINT)
    # The server asks for a token although one was sent, so the header was lost.
    if not rejects_token(answer):
        return problem(LOST_TOKEN, HEADER_HINT.format(name="Authorization"))
    hint = "manage.py mcp_token list shows those that are valid, and on which server."
    return problem("The server rejected the token.", hint)


def rejects_token(answer: ProbeResponse) -> bool:
    """Whether the server received a token and found it invalid (RFC 6750, 3.1)."""
    challenge = answer.headers.get("www-authenticate")
    return answer.status == 401 and (challenge is None or "invalid_token" in challenge)


def unexpected_response(checks: LiveChecks, answer: ProbeResponse) -> Finding:
    """Return the finding for a response that is not that of an MCP server."""
    if 300 <= answer.status < 400:
        return redirect_finding(checks, answer)
    failed = error(answer.body)
    words = str(failed.get("message", ""))[:200]
    if failed.get("code") == HEADER_MISMATCH:
        hint = HEADER_HINT.format(
            name=f"{http_rules.PROTOCOL_VERSION}, {http_rules.METHOD}, {http_rules.NAME}"
        )
        return problem(f"Headers are lost between client and server: {words}.", hint)
    if failed:
        hint = "Add the host to ALLOWED_HOSTS." if "ALLOWED_HOSTS" in words else "See its log."
        return problem(f"The server answers {answer.status}: {words}", hint)
    if WSGI.match(answer.headers.get("server", "")):
        return problem(
            f"A WSGI server answers, {answer.headers['server'][:60]}: MCP needs ASGI.", SERVE_ASGI
        )
    words, hint = STATUSES.get(answer.status, UNKNOWN_SERVER)
    kind = answer.kind or "no content type"
    return problem(f"{words} (status {answer.status}, {kind})", hint)


def redirect_finding(checks: LiveChecks, answer: ProbeResponse) -> Finding:
    target = answer.headers.get("location", "nowhere")[:200]
    hint = "Clients do not follow redirects of a POST: give them the URL of the target."
    if urljoin(checks.client.url, target) == f"{checks.client.url}/":
        hint = f"Django's APPEND_SLASH redirected: there is no MCP server at this path. {MOUNT}"
    return problem(f"The server redirects ({answer.status}) to {target}", hint)


UNKNOWN_SERVER = ("The response is not that of an MCP server", "Another program may listen here.")
UNREACHED = ("A proxy cannot reach the server", "Is the ASGI server running, and where?")
# The Server header of WSGI servers. Behind a proxy it is the proxy's.
WSGI = re.compile(r"gunicorn(?!/asgi)|WSGIServer|waitress|uWSGI|.*mod_wsgi|Cheroot", re.I)
SERVE_ASGI = (
    "Serve asgi.py with an ASGI server: daphne, uvicorn, granian, hypercorn, or gunicorn with "
    "--worker-class uvicorn_worker.UvicornWorker. The rest of the site may stay on WSGI."
)
NOT_MOUNTED = f"Either this is a WSGI server, or the ASGI application has no MCP server. {MOUNT}"
STATUSES: dict[int, tuple[str, str]] = {
    400: ("The request is rejected", "Is the host in ALLOWED_HOSTS?"),
    401: ("A proxy asks for authentication", "Let the MCP server authenticate its clients."),
    403: ("The request is rejected", f"Django's CSRF check may have done it. {NOT_MOUNTED}"),
    404: ("There is no MCP server at this path", NOT_MOUNTED),
    405: ("This path does not accept POST", NOT_MOUNTED),
    413: ("A proxy rejects a body of 200 bytes", "Look at its limits."),
    500: ("The server failed", "Its log says why."),
    502: UNREACHED,
    503: UNREACHED,
    504: UNREACHED,
}


# Authentication.


def tokens(checks: LiveChecks) -> Findings:
    """Check that invalid tokens are rejected, and what a request without a token receives."""
    rejected = checks.newest(Authorization=f"Bearer {NO_TOKEN}")
    if not rejects_token(rejected):
        yield problem(LOST_TOKEN, HEADER_HINT.format(name="Authorization"))
    elif "www-authenticate" not in rejected.headers:
        yield problem(
            "An invalid token is rejected without the header WWW-Authenticate: "
            "clients do not learn how to get a token.",
            HEADER_HINT.format(name="WWW-Authenticate"),
        )
    else:
        yield ok("An invalid token is rejected with the right error.")
    anonymous = checks.newest("tools/list", Authorization=None)
    if anonymous.status == 401:
        yield ok("A request without a token is rejected with 401.")
    elif anonymous.status == 200:
        yield note(f"A request without a token gets what is PUBLIC: {tool_count(anonymous)}.")


def lists(checks: LiveChecks) -> Findings:
    answer = checks.newest("tools/list")
    if answer.status == 200:
        yield ok(
            f"It lists {tool_count(answer)} {'with the token' if checks.token else ''}".rstrip()
        )
    else:
        yield unexpected_response(checks, answer)


def tool_count(answer: ProbeResponse) -> str:
    found = result(answer.body)
    tools = found.get("tools")
    number = len(tools) if isinstance(tools, list) else 0
    return count_tools(number, " or more" if "nextCursor" in found else "")


# Sessions.


def sessions(checks: LiveChecks) -> Findings:
    """Start, use and end a session, as clients of older revisions do."""
    initialized = checks.post(INITIALIZE, json_headers())
    if initialized.status != 200 or "protocolVersion" not in result(initialized.body):
        yield unexpected_response(checks, initialized)
        return
    id = initialized.headers.get(http_rules.SESSION_ID)
    if id is None:
        yield problem(
            "The response to initialize has no header Mcp-Session-Id: sessions do not work.",
            HEADER_HINT.format(name="Mcp-Session-Id"),
        )
        return
    session = json_headers() | {http_rules.SESSION_ID: id, http_rules.PROTOCOL_VERSION: SESSIONS}
    with _deleting_session(checks, session):
        found = list(_use_session(checks, session))
        yield from found
    after = checks.post(request("ping"), session)
    if after.status == 404:
        yield ok("A session starts, answers and ends.")
    elif all(one.level == "ok" for one in found):
        yield warning(
            f"A session still exists after DELETE (status {after.status}).",
            "Does the proxy forward DELETE requests?",
        )


@contextmanager
def _deleting_session(checks: LiveChecks, session: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(Unreachable):
            checks.client.ask("DELETE", checks.with_token(session, {}))


def _use_session(checks: LiveChecks, session: Mapping[str, str]) -> Findings:
    checks.post(request("notifications/initialized", id=None), session)
    for method in ("ping", "tools/list"):
        answer = checks.post(request(method), session)
        if answer.status == 404:
            yield problem(
                "The second request of a session does not find it.",
                "All processes need the same session database: not in memory or a container.",
            )
            return
        if answer.status == 400 and "Mcp-Session-Id" in str(error(answer.body)):
            hint = HEADER_HINT.format(name="Mcp-Session-Id")
            yield problem("The header Mcp-Session-Id does not arrive.", hint)
            return
        if answer.status != 200:
            yield unexpected_response(checks, answer)
    yield _stream(checks, {**session, "Accept": http_rules.SSE_TYPE})


def _stream(checks: LiveChecks, headers: Mapping[str, str]) -> Finding:
    """Check that a stream starts at once. The server sends its first event immediately."""
    try:
        answer = checks.client.ask("GET", checks.with_token(headers, {}), first=True)
    except Unreachable as unreachable:
        return problem(f"A stream does not start: {unreachable}", BUFFERING_HINT)
    if answer.status != 200 or answer.kind != http_rules.SSE_TYPE:
        return problem(
            f"The request for a stream gets {answer.status}, {answer.kind or 'no content type'}.",
            "Does the proxy forward GET requests with Accept: text/event-stream?",
        )
    if answer.silent or not answer.body:
        return problem("A stream sent nothing within the time limit.", BUFFERING_HINT)
    if answer.headers.get("content-encoding", "identity") != "identity":
        return warning("A stream is compressed, so events may be delayed.", BUFFERING_HINT)
    if answer.seconds > SLOW_SECONDS:
        return warning(f"A stream began after {answer.seconds:.1f} seconds.", BUFFERING_HINT)
    return ok(f"A stream begins in {answer.seconds * 1000:.0f} ms, and is not buffered.")


# Other URLs, origins and hosts.


def slashes(checks: LiveChecks) -> Findings:
    """Check the same URL with or without a slash at its end."""
    path = checks.client.parts.path
    other = path.removesuffix("/") if path.endswith("/") else f"{path}/"
    if not path.strip("/"):
        return
    headers = checks.with_token(stateless_headers(), {})
    answer = checks.client.ask("POST", headers, DISCOVER, path=other)
    if is_response(answer.body):
        yield ok(f"{other} is the same server.")
    else:
        yield warning(
            f"{other} is answered by {answer.status}: clients with this URL fail.",
            "Route both to the ASGI server, without a redirect.",
        )


def origins(checks: LiveChecks) -> Findings:
    """Check that other sites' pages are rejected: "Servers MUST validate the Origin header"."""
    if checks.newest(Origin=OTHER_ORIGIN).status < 400:
        yield problem(
            "Pages of other sites are accepted.",
            "The header Origin does not arrive, or CSRF_TRUSTED_ORIGINS allows too much.",
        )
    else:
        yield ok("Pages of other sites are rejected.")
    parts = checks.client.parts
    own = f"{parts.scheme}://{parts.netloc}"
    if checks.newest(Origin=own).status == 403:
        yield warning(
            f"Requests from pages of {own} itself are rejected.",
            'Set DJANGO_MCP["URL"] to this origin, and check SECURE_PROXY_SSL_HEADER.',
        )


def hosts(checks: LiveChecks) -> Findings:
    with suppress(Unreachable):  # no response is as good as a rejection
        # Without the token: with this Host, a proxy may pass the request to another site.
        if is_mcp_response(checks.newest(Host="elsewhere.invalid", Authorization=None)):
            yield warning(
                "The server accepts any name in the header Host.",
                'ALLOWED_HOSTS contains "*", or the proxy replaces the header.',
            )
            return
    yield ok("Other host names are rejected.")


def is_mcp_response(answer: ProbeResponse) -> bool:
    """Whether the MCP server accepted the request or asked for a token."""
    return answer.status in (200, 401) and is_response(answer.body)


def body_limit(checks: LiveChecks) -> Findings:
    """Check that a request is rejected by its length, before its body arrives.

    daphne reads a whole body before it calls the application, so only a proxy can limit it. Servers
    on this machine are skipped: usually the proxy is not asked there.
    """
    parts = checks.client.parts
    if is_local(parts.hostname or ""):
        return
    client = ProbeClient(checks.client.url, min(checks.client.seconds, BODY_LIMIT_SECONDS))
    try:
        client.ask("POST", stateless_headers() | {"Content-Length": str(HUGE_BODY_BYTES)}, b"")
    except Unreachable as unreachable:
        if unreachable.is_timeout:
            yield warning(
                "Nothing limits the size of a request: the server waits for a body of 1 TB.",
                "Let a proxy limit it (nginx: client_max_body_size 3m). daphne cannot.",
            )
            return
    yield ok("A request that is too large is rejected before its body arrives.")


def schemes(checks: LiveChecks) -> Findings:
    parts = checks.client.parts
    if parts.scheme == "https" and parts.port is None:
        plain = ProbeClient(parts._replace(scheme="http").geturl(), min(checks.client.seconds, 3))
        with suppress(Unreachable):
            if is_mcp_response(plain.ask("POST", stateless_headers(), DISCOVER)):
                yield warning(
                    "The server answers over http too, where tokens are not encrypted.",
                    "Let the proxy redirect http to https.",
                )
    elif _is_unencrypted(checks):
        yield warning("The URL is not https.", "Access tokens are sent unencrypted.")


def page(checks: LiveChecks) -> Findings:
    """Check what a browser receives at the URL."""
    answer = checks.client.ask("GET", {"Accept": http_rules.HTML_TYPE})
    if answer.status == 200 and answer.kind == http_rules.HTML_TYPE:
        yield ok("A browser gets a page.")
    elif answer.status >= 500:
        yield warning(f"A browser gets an error ({answer.status}).", "Its log says why.")
    else:
        yield note(f"A browser gets no page (status {answer.status}).")


LiveCheck = tuple[str, Callable[[LiveChecks], Findings]]
ANONYMOUS_CHECKS: tuple[LiveCheck, ...] = (
    ("tokens", tokens),
    ("pages and hosts", origins),
    ("pages and hosts", hosts),
    ("client addresses", client_addresses),
    ("other addresses", slashes),
    ("other addresses", schemes),
    ("large requests", body_limit),
    ("browsers", page),
)
AUTHORIZED_CHECKS: tuple[LiveCheck, ...] = (
    ("tools", lists),
    ("sessions", sessions),
    ("HTTP+SSE", legacy_sse),
)
