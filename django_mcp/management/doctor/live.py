"""
Checks of ``mcp_doctor`` on a running server, by HTTP requests as each kind of client sends them.

``LiveChecks`` discovers, lists and pings. It calls no tool, changes nothing, and ends the session
that it starts. The token is sent to the given URL only, and never without TLS, except to this
machine.

``older`` opens an HTTP+SSE stream, if the server has that on, and checks that the URL in the
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
    around,
    counted,
    error,
    is_answer,
    note,
    ok,
    problem,
    request,
    result,
    standing_alone,
    typed,
    warning,
)
from .installation import MOUNT, is_local

ADDRESS = re.compile(rb"\Aevent: endpoint\r?\n(?:.*\r?\n)*?data: (/[!-~]*)\r?\n")
ASTRAY = (
    "Let the proxy pass on the path and the query as they are; a path that it takes away must be "
    "said: FORCE_SCRIPT_NAME, or the root path of the ASGI server."
)


def older(visit: LiveChecks) -> Findings:
    """Check HTTP+SSE, which clients of the first revision need."""
    try:
        answer = visit.wire.ask(
            "GET", visit.with_token({"Accept": http_rules.SSE_TYPE}, {}), first=True
        )
    except Unreachable:
        return  # ``sessions`` reports why streams do not work
    if answer.status == 200 and answer.kind == http_rules.SSE_TYPE:
        yield _named(visit, answer)


def _named(visit: LiveChecks, answer: ProbeResponse) -> Finding:
    named = ADDRESS.match(answer.body)
    if named is None:
        return problem("A stream of HTTP+SSE does not begin with the URL for POST.", ASTRAY)
    address = named[1].decode("ascii")
    path = address.partition("?")[0]
    posted = visit.wire.ask("POST", visit.with_token(typed(), {}), request("ping"), path=address)
    visit.wire.ask("DELETE", visit.with_token({}, {}), path=address)
    if posted.status == 202:
        return ok(f"HTTP+SSE is on, for clients that support nothing newer. They post to {path}.")
    words = f"HTTP+SSE names {path} to post to, which is answered by {posted.status}."
    return problem(words, ASTRAY)


FORGED = "192.0.2.123"  # RFC 5737: an address for documentation, which no client has
# A visit from here is not taken for one of a proxy on the same machine, which comes from 127.0.0.1
# and which servers trust by default. Linux has all of 127.0.0.0/8.
LOCAL, SECOND_LOCAL = "127.0.0.1", "127.0.0.2"
METADATA = "/.well-known/oauth-authorization-server"
SET_HEADER = "In nginx: proxy_set_header X-Forwarded-For $remote_addr;"
TRUST_PROXY = (
    "Name the proxy to the server: FORWARDED_ALLOW_IPS=ADDRESS in the environment of uvicorn or "
    "gunicorn, --proxy-headers of daphne."
)


def client_addresses(visit: LiveChecks) -> Findings:
    """Check the MCP endpoint and, if clients may register themselves, the registration endpoint."""
    wire = _from_elsewhere(visit.wire)
    if wire is None:
        yield note("The client address cannot be checked over the loopback device.")
        return
    yield _looked_at(wire, "The MCP endpoint", around(), DISCOVER, None)
    if path := _registration_path(wire):
        headers = {"Content-Type": "application/json"}  # an empty body registers nothing
        yield _looked_at(wire, "The registration endpoint", headers, b"{}", path)


def _from_elsewhere(wire: ProbeClient) -> ProbeClient | None:
    """Return a wire from an address that no proxy has. None if this machine has no such address."""
    if wire.own_address() != LOCAL:
        return wire if wire.own_address() != "::1" else None
    try:
        with socket.socket() as probe:
            probe.bind((SECOND_LOCAL, 0))
    except OSError:
        return None
    return ProbeClient(wire.url, wire.seconds, source=SECOND_LOCAL)


def _registration_path(wire: ProbeClient) -> str:
    try:
        answer = wire.ask("GET", {}, path=METADATA)
        found = json.loads(answer.body)["registration_endpoint"] if answer.status == 200 else ""
        return urlsplit(found).path
    except (Unreachable, ValueError, TypeError, KeyError, AttributeError):
        return ""


def _looked_at(
    wire: ProbeClient, what: str, headers: Mapping[str, str], body: bytes, path: str | None
) -> Finding:
    claimed = {
        address_probe.REQUEST_HEADER: address_probe.signed_probe(),
        "X-Forwarded-For": FORGED, "X-Real-IP": FORGED, "Forwarded": f"for={FORGED}",
    }  # fmt: skip
    answer: ProbeResponse = wire.ask("POST", {**headers, **claimed}, body, path=path)
    seen = address_probe.read_response(answer.headers.get(address_probe.RESPONSE_HEADER))
    if seen is None:
        return note(
            f"{what} does not say which client address it sees.",
            "It answers only with the server's SECRET_KEY: run mcp_doctor where the server runs.",
        )
    return judged(what, seen, answer.own_address)


def judged(what: str, seen: SeenAddress, own: str) -> Finding:
    hops = [hop.strip() for hop in seen.forwarded.split(",") if hop.strip()]
    if seen.client == FORGED:
        return problem(
            f"{what} believes any client that sends X-Forwarded-For: no limit by address holds.",
            f"Let the proxy replace the header, not pass it on. {SET_HEADER}",
        )
    if seen.client == own or seen.client in hops:
        return ok(f"{what} sees the client's address, {seen.client}.")
    if any(hop != FORGED for hop in hops):
        return problem(
            f"{what} sees the proxy's address, {seen.client}, for every client: all of them share "
            "one limit.",
            TRUST_PROXY.replace("ADDRESS", seen.client),
        )
    if _is_global(seen.client) and not _is_global(own):
        return warning(
            f"{what} sees the address {seen.client}: this machine's to the outside, or a proxy's.",
            f"If it is a proxy's: {SET_HEADER} {TRUST_PROXY.replace('ADDRESS', seen.client)}",
        )
    return problem(
        f"{what} sees the address {seen.client} for every client: the proxy does not say whose "
        "request it passes on.",
        f"{SET_HEADER} {TRUST_PROXY.replace('ADDRESS', seen.client)}",
    )


def _is_global(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return False


NO_TOKEN = "mcp_" + "0" * 43  # well-formed but invalid
ELSEWHERE = "https://elsewhere.invalid"  # RFC 6761: a name that nobody has
BODY_LIMIT_SECONDS = 3.0  # seconds within which a request that is too large must be rejected
HUGE_BODY_BYTES = 10**12  # more than any limit
SLOW_SECONDS = 2.0  # seconds after which a response is reported as slow
PASSES = "Let the proxy pass the header {name}: see its documentation."
LOST_TOKEN = "The header Authorization does not arrive: whoever shows a token is nobody."
MORE = "--token TOKEN, or DJANGO_MCP_TOKEN in the environment, lets it look further."
BUFFERED = (
    "A proxy keeps answers back until they are whole: switch its buffering off for this path "
    "(nginx: proxy_buffering off), and compression of text/event-stream too."
)


class LiveChecks:
    """The checks of one URL, with a token or anonymously. ``seconds`` limits each request."""

    def __init__(self, url: str, token: str | None, seconds: float) -> None:
        self.wire = ProbeClient(url, seconds)
        self.token = token
        self.looks: tuple[Look, ...] = ()  # the checks that apply, set by ``arrive``

    def findings(self) -> Findings:
        """Yield the findings. Later checks depend on the first one, ``arrive``."""
        try:
            yield from self._named("the address", arrive)
        except Unreachable as unreachable:
            yield problem(str(unreachable), unreachable.hint)
            return
        for part, look in self.looks:
            try:
                yield from self._named(part, look)
            except Unreachable as unreachable:
                yield Finding("problem", str(unreachable), unreachable.hint, part)

    def _named(self, part: str, look: Callable[[LiveChecks], Findings]) -> Findings:
        for one in look(self):
            yield Finding(one.level, one.words, one.hint, part)

    def newest(self, method: str = "server/discover", **more: str | None) -> ProbeResponse:
        """Send a request of the newest revision. ``more`` are headers; None removes one."""
        return self.post(standing_alone(method), around(method), more)

    def post(
        self, body: bytes, headers: Mapping[str, str], more: Mapping[str, str | None] | None = None
    ) -> ProbeResponse:
        return self.wire.ask("POST", self.with_token(headers, more or {}), body)

    def with_token(
        self, headers: Mapping[str, str], more: Mapping[str, str | None]
    ) -> dict[str, str]:
        shown = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {
            name: value for name, value in {**headers, **shown, **more}.items() if value is not None
        }


def arrive(visit: LiveChecks) -> Findings:
    """Check that an MCP server answers and accepts the token. Choose the further checks."""
    if visit.token and _is_in_the_clear(visit):
        visit.token = None
        yield warning(
            "The token is not shown: here it would go through the net in the clear.",
            "Serve it through https.",
        )
    answer = visit.newest()
    if "supportedVersions" in result(answer.body):
        visit.looks = INSIDE + OUTSIDE
        yield arrived(answer)
    elif answer.status == 401 and is_answer(answer.body):
        visit.looks = OUTSIDE
        yield refused(visit, answer)
    else:
        yield strange(visit, answer)


def arrived(answer: ProbeResponse) -> Finding:
    words = f"An MCP server answers in {answer.seconds * 1000:.0f} ms."
    if answer.seconds < SLOW_SECONDS:
        return ok(words)
    return warning(words, "Is a worker busy with other things?")


def _is_in_the_clear(visit: LiveChecks) -> bool:
    parts = visit.wire.parts
    return parts.scheme != "https" and not is_local(parts.hostname or "")


def refused(visit: LiveChecks, answer: ProbeResponse) -> Finding:
    if visit.token is None:
        return note("An MCP server answers, and asks for a token.", MORE)
    # The server asks for a token although one was sent, so the header was lost.
    if not says_invalid(answer):
        return problem(LOST_TOKEN, PASSES.format(name="Authorization"))
    hint = "manage.py mcp_token list shows those that are valid, and on which server."
    return problem("The token is refused.", hint)


def says_invalid(answer: ProbeResponse) -> bool:
    """Whether the server received a token and found it invalid (RFC 6750, 3.1)."""
    told = answer.headers.get("www-authenticate")
    return answer.status == 401 and (told is None or "invalid_token" in told)


def strange(visit: LiveChecks, answer: ProbeResponse) -> Finding:
    """Return the finding for a response that is not that of an MCP server."""
    if 300 <= answer.status < 400:
        return redirected(visit, answer)
    failed = error(answer.body)
    words = str(failed.get("message", ""))[:200]
    if failed.get("code") == HEADER_MISMATCH:
        hint = PASSES.format(
            name=f"{http_rules.PROTOCOL_VERSION}, {http_rules.METHOD}, {http_rules.NAME}"
        )
        return problem(f"Headers are lost between client and server: {words}.", hint)
    if failed:
        hint = "Add the host to ALLOWED_HOSTS." if "ALLOWED_HOSTS" in words else "See its log."
        return problem(f"It answers {answer.status}: {words}", hint)
    if WSGI.match(answer.headers.get("server", "")):
        return problem(
            f"A WSGI server answers, {answer.headers['server'][:60]}: it has no MCP.", SERVE_ASGI
        )
    told, hint = STATUSES.get(answer.status, UNKNOWN)
    kind = answer.kind or "nothing"
    return problem(f"{told} (status {answer.status}, {kind})", hint)


def redirected(visit: LiveChecks, answer: ProbeResponse) -> Finding:
    target = answer.headers.get("location", "nowhere")[:200]
    hint = "Clients do not follow redirects of a POST: give them the address it leads to."
    if urljoin(visit.wire.url, target) == f"{visit.wire.url}/":
        hint = f"Django's APPEND_SLASH answered, and no MCP server. {MOUNT}"
    return problem(f"It answers with a redirect ({answer.status}) to {target}", hint)


UNKNOWN = ("Something answers that is no MCP server", "Another program may listen here.")
PROXY = ("A proxy answers that reaches no server", "Is the ASGI server running, and where?")
# The Server header of WSGI servers. Behind a proxy it is the proxy's.
WSGI = re.compile(r"gunicorn(?!/asgi)|WSGIServer|waitress|uWSGI|.*mod_wsgi|Cheroot", re.I)
SERVE_ASGI = (
    "Serve asgi.py with an ASGI server: daphne, uvicorn, granian, hypercorn, or gunicorn with "
    "--worker-class uvicorn_worker.UvicornWorker. A site may stay on WSGI beside it."
)
DJANGO = f"Either a WSGI server answers, which has no MCP, or the application lacks it. {MOUNT}"
STATUSES: dict[int, tuple[str, str]] = {
    400: ("The request is refused", "If Django answered: is the host in ALLOWED_HOSTS?"),
    401: ("Somebody before the MCP server asks who it is", "Let the proxy leave that to it."),
    403: ("The request is refused", f"By CSRF, if Django answered. {DJANGO}"),
    404: ("There is no MCP server at this path", DJANGO),
    405: ("What is at this path takes no POST", DJANGO),
    413: ("A proxy finds 200 bytes too much", "Look at its limits."),
    500: ("The server is broken", "Its log says why."),
    502: PROXY,
    503: PROXY,
    504: PROXY,
}


# Authentication.


def tokens(visit: LiveChecks) -> Findings:
    """Check that invalid tokens are rejected, and what a request without a token receives."""
    wrong = visit.newest(Authorization=f"Bearer {NO_TOKEN}")
    if not says_invalid(wrong):
        yield problem(LOST_TOKEN, PASSES.format(name="Authorization"))
    elif "www-authenticate" not in wrong.headers:
        yield problem(
            "A token that is none is refused without the header WWW-Authenticate: "
            "clients do not learn what is asked for.",
            PASSES.format(name="WWW-Authenticate"),
        )
    else:
        yield ok("An invalid token is rejected with the right error.")
    nobody = visit.newest("tools/list", Authorization=None)
    if nobody.status == 401:
        yield ok("A request without a token is asked for one.")
    elif nobody.status == 200:
        yield note(f"A request without a token gets what is PUBLIC: {listed(nobody)}.")


def lists(visit: LiveChecks) -> Findings:
    answer = visit.newest("tools/list")
    if answer.status == 200:
        yield ok(f"It lists {listed(answer)} {'with the token' if visit.token else ''}".rstrip())
    else:
        yield strange(visit, answer)


def listed(answer: ProbeResponse) -> str:
    found = result(answer.body)
    tools = found.get("tools")
    number = len(tools) if isinstance(tools, list) else 0
    return counted(number, " or more" if "nextCursor" in found else "")


# Sessions.


def sessions(visit: LiveChecks) -> Findings:
    """Start, use and end a session, as clients of older revisions do."""
    begun = visit.post(INITIALIZE, typed())
    if begun.status != 200 or "protocolVersion" not in result(begun.body):
        yield strange(visit, begun)
        return
    id = begun.headers.get(http_rules.SESSION_ID)
    if id is None:
        yield problem(
            "A session begins without the header Mcp-Session-Id: no client finds it again.",
            PASSES.format(name="Mcp-Session-Id"),
        )
        return
    session = typed() | {http_rules.SESSION_ID: id, http_rules.PROTOCOL_VERSION: SESSIONS}
    with _ended(visit, session):
        found = list(_within(visit, session))
        yield from found
    after = visit.post(request("ping"), session)
    if after.status == 404:
        yield ok("A session starts, answers and ends.")
    elif all(one.level == "ok" for one in found):
        yield warning(
            f"A session goes on after its end (status {after.status}).",
            "Does the proxy let DELETE through?",
        )


@contextmanager
def _ended(visit: LiveChecks, session: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(Unreachable):
            visit.wire.ask("DELETE", visit.with_token(session, {}))


def _within(visit: LiveChecks, session: Mapping[str, str]) -> Findings:
    visit.post(request("notifications/initialized", id=None), session)
    for method in ("ping", "tools/list"):
        answer = visit.post(request(method), session)
        if answer.status == 404:
            yield problem(
                "A session is not there at its second request.",
                "Do all processes use one database? One in memory, or in a container, is not.",
            )
            return
        if answer.status == 400 and "Mcp-Session-Id" in str(error(answer.body)):
            yield problem(
                "The header Mcp-Session-Id does not arrive.", PASSES.format(name="Mcp-Session-Id")
            )
            return
        if answer.status != 200:
            yield strange(visit, answer)
    yield _stream(visit, {**session, "Accept": http_rules.SSE_TYPE})


def _stream(visit: LiveChecks, headers: Mapping[str, str]) -> Finding:
    """Check that a stream starts at once. The server sends its first event immediately."""
    try:
        answer = visit.wire.ask("GET", visit.with_token(headers, {}), first=True)
    except Unreachable as unreachable:
        return problem(f"A stream does not begin: {unreachable}", BUFFERED)
    if answer.status != 200 or answer.kind != http_rules.SSE_TYPE:
        return problem(
            f"A stream is answered by {answer.status}, {answer.kind or 'nothing'}.",
            "Does the proxy let GET with Accept: text/event-stream through?",
        )
    if answer.silent or not answer.body:
        return problem("A stream sent nothing within the time limit.", BUFFERED)
    if answer.headers.get("content-encoding", "identity") != "identity":
        return warning("A stream is compressed, so events may be delayed.", BUFFERED)
    if answer.seconds > SLOW_SECONDS:
        return warning(f"A stream began after {answer.seconds:.1f} seconds.", BUFFERED)
    return ok(f"A stream begins in {answer.seconds * 1000:.0f} ms, and is not buffered.")


# Other URLs, origins and hosts.


def slashes(visit: LiveChecks) -> Findings:
    """Check the same URL with or without a slash at its end."""
    path = visit.wire.parts.path
    other = path.removesuffix("/") if path.endswith("/") else f"{path}/"
    if not path.strip("/"):
        return
    headers = visit.with_token(around(), {})
    answer = visit.wire.ask("POST", headers, DISCOVER, path=other)
    if is_answer(answer.body):
        yield ok(f"{other} is the same server.")
    else:
        yield warning(
            f"{other} is answered by {answer.status}: a client with that address fails.",
            "Lead both to the ASGI server, without a redirect.",
        )


def origins(visit: LiveChecks) -> Findings:
    """Check that other sites' pages are rejected: "Servers MUST validate the Origin header"."""
    if visit.newest(Origin=ELSEWHERE).status < 400:
        yield problem(
            "Pages of other sites are accepted.",
            "The header Origin does not arrive, or CSRF_TRUSTED_ORIGINS has too much in it.",
        )
    else:
        yield ok("Pages of other sites are rejected.")
    parts = visit.wire.parts
    own = f"{parts.scheme}://{parts.netloc}"
    if visit.newest(Origin=own).status == 403:
        yield warning(
            f"A page of {own} itself may not ask here.",
            'Say the origin in DJANGO_MCP["URL"], and look at SECURE_PROXY_SSL_HEADER.',
        )


def hosts(visit: LiveChecks) -> Findings:
    with suppress(Unreachable):  # no response is as good as a rejection
        # Without the token: with this Host, a proxy may pass the request to another site.
        if is_answer_to(visit.newest(Host="elsewhere.invalid", Authorization=None)):
            yield warning(
                "It answers to any name in the header Host.",
                'ALLOWED_HOSTS has "*" in it, or the proxy puts in a name of its own.',
            )
            return
    yield ok("Other host names are rejected.")


def is_answer_to(answer: ProbeResponse) -> bool:
    """Whether the MCP server accepted the request or asked for a token."""
    return answer.status in (200, 401) and is_answer(answer.body)


def body_limit(visit: LiveChecks) -> Findings:
    """Check that a request is rejected by its length, before its body arrives.

    daphne reads a whole body before it calls the application, so only a proxy can limit it. Servers
    on this machine are skipped: usually the proxy is not asked there.
    """
    parts = visit.wire.parts
    if is_local(parts.hostname or ""):
        return
    wire = ProbeClient(visit.wire.url, min(visit.wire.seconds, BODY_LIMIT_SECONDS))
    try:
        wire.ask("POST", around() | {"Content-Length": str(HUGE_BODY_BYTES)}, b"")
    except Unreachable as unreachable:
        if unreachable.is_timeout:
            yield warning(
                "Nothing limits the size of a request: the server waits for a body of 1 TB.",
                "Let a proxy limit it (nginx: client_max_body_size 3m). daphne cannot.",
            )
            return
    yield ok("A request that is too large is rejected before its body arrives.")


def schemes(visit: LiveChecks) -> Findings:
    parts = visit.wire.parts
    if parts.scheme == "https" and parts.port is None:
        plain = ProbeClient(parts._replace(scheme="http").geturl(), min(visit.wire.seconds, 3))
        with suppress(Unreachable):
            if is_answer_to(plain.ask("POST", around(), DISCOVER)):
                yield warning(
                    "It answers over http too, where tokens would go in the clear.",
                    "Let the proxy redirect http to https.",
                )
    elif _is_in_the_clear(visit):
        yield warning("The URL is not https.", "Access tokens are sent unencrypted.")


def page(visit: LiveChecks) -> Findings:
    """Check what a browser receives at the URL."""
    answer = visit.wire.ask("GET", {"Accept": http_rules.HTML_TYPE})
    if answer.status == 200 and answer.kind == http_rules.HTML_TYPE:
        yield ok("A browser gets a page.")
    elif answer.status >= 500:
        yield warning(f"A browser gets an error ({answer.status}).", "Its log says why.")
    else:
        yield note(f"A browser gets no page (status {answer.status}).")


Look = tuple[str, Callable[[LiveChecks], Findings]]
OUTSIDE: tuple[Look, ...] = (
    ("tokens", tokens),
    ("pages and hosts", origins),
    ("pages and hosts", hosts),
    ("client addresses", client_addresses),
    ("other addresses", slashes),
    ("other addresses", schemes),
    ("large requests", body_limit),
    ("browsers", page),
)
INSIDE: tuple[Look, ...] = (("tools", lists), ("sessions", sessions), ("HTTP+SSE", older))
