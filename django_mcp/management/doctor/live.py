"""
A visit to a running server, as each kind of client would make it.

Rule: nothing of the project's is called or changed: it discovers, lists, pings, and ends
the session that it began. A token is shown to this address alone, and never in the clear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import urljoin

from ...protocol import http
from ...protocol.errors import HEADER_MISMATCH
from .findings import Finding, Findings, note, ok, problem, warning
from .installation import MOUNT, is_local
from .messages import (
    DISCOVER,
    INITIALIZE,
    SESSIONS,
    around,
    counted,
    error,
    is_answer,
    request,
    result,
    standing_alone,
    typed,
)
from .sse import older
from .wire import Answer, Unreachable, Wire

NO_TOKEN = "mcp_" + "0" * 43  # has the form of one, and is none
ELSEWHERE = "https://elsewhere.invalid"  # RFC 6761: a name that nobody has
LATE = 2.0  # seconds after which a person wonders
PASSES = "Let the proxy pass the header {name}: see its documentation."
LOST_TOKEN = "The header Authorization does not arrive: whoever shows a token is nobody."
MORE = "--token TOKEN, or DJANGO_MCP_TOKEN in the environment, lets it look further."
BUFFERED = (
    "A proxy keeps answers back until they are whole: switch its buffering off for this path "
    "(nginx: proxy_buffering off), and compression of text/event-stream too."
)


class Visit:
    """To ``url``, with a token or as nobody. ``seconds`` bounds every wait."""

    def __init__(self, url: str, token: str | None, seconds: float) -> None:
        self.wire = Wire(url, seconds)
        self.token = token
        self.looks: tuple[Look, ...] = ()  # what there is to look at from where we got to

    def findings(self) -> Findings:
        """What is to be said, part by part: later ones need the earlier."""
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

    def _named(self, part: str, look: Callable[[Visit], Findings]) -> Findings:
        for one in look(self):
            yield Finding(one.level, one.words, one.hint, part)

    def newest(self, method: str = "server/discover", **more: str | None) -> Answer:
        """A request that stands alone; ``more`` are headers, None leaves one out."""
        return self.post(standing_alone(method), around(method), more)

    def post(
        self, body: bytes, headers: Mapping[str, str], more: Mapping[str, str | None] | None = None
    ) -> Answer:
        return self.wire.ask("POST", self.with_token(headers, more or {}), body)

    def with_token(
        self, headers: Mapping[str, str], more: Mapping[str, str | None]
    ) -> dict[str, str]:
        shown = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {
            name: value for name, value in {**headers, **shown, **more}.items() if value is not None
        }


def arrive(visit: Visit) -> Findings:
    """Whether somebody is there who speaks MCP, and lets us in."""
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


def arrived(answer: Answer) -> Finding:
    words = f"An MCP server answers in {answer.seconds * 1000:.0f} ms."
    if answer.seconds < LATE:
        return ok(words)
    return warning(words, "Is a worker busy with other things?")


def _is_in_the_clear(visit: Visit) -> bool:
    parts = visit.wire.parts
    return parts.scheme != "https" and not is_local(parts.hostname or "")


def refused(visit: Visit, answer: Answer) -> Finding:
    if visit.token is None:
        return note("An MCP server answers, and asks for a token.", MORE)
    if not says_invalid(answer):  # it asks for one, as if there were none
        return problem(LOST_TOKEN, PASSES.format(name="Authorization"))
    hint = "manage.py mcp_token list shows those that are valid, and on which server."
    return problem("The token is refused.", hint)


def says_invalid(answer: Answer) -> bool:
    """Whether a token was seen, and found wrong (RFC 6750, 3.1)."""
    told = answer.headers.get("www-authenticate")
    return answer.status == 401 and (told is None or "invalid_token" in told)


def strange(visit: Visit, answer: Answer) -> Finding:
    """What answered is not what was meant, or was not asked what we asked."""
    if 300 <= answer.status < 400:
        return redirected(visit, answer)
    failed = error(answer.body)
    words = str(failed.get("message", ""))[:200]
    if failed.get("code") == HEADER_MISMATCH:
        hint = PASSES.format(name=f"{http.PROTOCOL_VERSION}, {http.METHOD}, {http.NAME}")
        return problem(f"Headers get lost on the way: {words}.", hint)
    if failed:
        hint = "Add the host to ALLOWED_HOSTS." if "ALLOWED_HOSTS" in words else "See its log."
        return problem(f"It answers {answer.status}: {words}", hint)
    told, hint = STATUSES.get(answer.status, UNKNOWN)
    kind = answer.kind or "nothing"
    return problem(f"{told} (status {answer.status}, {kind})", hint)


def redirected(visit: Visit, answer: Answer) -> Finding:
    target = answer.headers.get("location", "nowhere")[:200]
    hint = "Clients do not follow redirects of a POST: give them the address it leads to."
    if urljoin(visit.wire.url, target) == f"{visit.wire.url}/":
        hint = f"Django's APPEND_SLASH answered, and no MCP server. {MOUNT}"
    return problem(f"It answers with a redirect ({answer.status}) to {target}", hint)


UNKNOWN = ("Something answers that is no MCP server", "Another program may listen here.")
PROXY = ("A proxy answers that reaches no server", "Is the ASGI server running, and where?")
DJANGO = f"The ASGI server may serve another application, or it is WSGI. {MOUNT}"
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


# Who is let in.


def tokens(visit: Visit) -> Findings:
    """Whether the header arrives, and what is said to who has no token."""
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
        yield ok("A token that is none is refused, and says so.")
    nobody = visit.newest("tools/list", Authorization=None)
    if nobody.status == 401:
        yield ok("Who shows no token is asked for one.")
    elif nobody.status == 200:
        yield note(f"Who shows no token sees what is PUBLIC: {listed(nobody)}.")


def lists(visit: Visit) -> Findings:
    answer = visit.newest("tools/list")
    if answer.status == 200:
        yield ok(f"It lists {listed(answer)} {'with the token' if visit.token else ''}".rstrip())
    else:
        yield strange(visit, answer)


def listed(answer: Answer) -> str:
    found = result(answer.body)
    tools = found.get("tools")
    number = len(tools) if isinstance(tools, list) else 0
    return counted(number, " or more" if "nextCursor" in found else "")


# Sessions.


def sessions(visit: Visit) -> Findings:
    """From its beginning to its end, as clients of older revisions have one."""
    begun = visit.post(INITIALIZE, typed())
    if begun.status != 200 or "protocolVersion" not in result(begun.body):
        yield strange(visit, begun)
        return
    id = begun.headers.get(http.SESSION_ID)
    if id is None:
        yield problem(
            "A session begins without the header Mcp-Session-Id: no client finds it again.",
            PASSES.format(name="Mcp-Session-Id"),
        )
        return
    session = typed() | {http.SESSION_ID: id, http.PROTOCOL_VERSION: SESSIONS}
    with _ended(visit, session):
        found = list(_within(visit, session))
        yield from found
    after = visit.post(request("ping"), session)
    if after.status == 404:
        yield ok("A session begins, answers and ends.")
    elif all(one.level == "ok" for one in found):
        yield warning(
            f"A session goes on after its end (status {after.status}).",
            "Does the proxy let DELETE through?",
        )


@contextmanager
def _ended(visit: Visit, session: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(Unreachable):
            visit.wire.ask("DELETE", visit.with_token(session, {}))


def _within(visit: Visit, session: Mapping[str, str]) -> Findings:
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
    yield _stream(visit, {**session, "Accept": http.SSE_TYPE})


def _stream(visit: Visit, headers: Mapping[str, str]) -> Finding:
    """What comes first of a stream, which says something at once."""
    try:
        answer = visit.wire.ask("GET", visit.with_token(headers, {}), first=True)
    except Unreachable as unreachable:
        return problem(f"A stream does not begin: {unreachable}", BUFFERED)
    if answer.status != 200 or answer.kind != http.SSE_TYPE:
        return problem(
            f"A stream is answered by {answer.status}, {answer.kind or 'nothing'}.",
            "Does the proxy let GET with Accept: text/event-stream through?",
        )
    if answer.silent or not answer.body:
        return problem("A stream says nothing, for all the time there was.", BUFFERED)
    if answer.headers.get("content-encoding", "identity") != "identity":
        return warning("A stream comes compressed: events may be kept back.", BUFFERED)
    if answer.seconds > LATE:
        return warning(f"A stream began after {answer.seconds:.1f} seconds.", BUFFERED)
    return ok(f"A stream begins in {answer.seconds * 1000:.0f} ms, and is not kept back.")


# Who else may ask, and how.


def slashes(visit: Visit) -> Findings:
    """The same address with a slash at its end, or without."""
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


def origins(visit: Visit) -> Findings:
    """What pages in browsers may do: "Servers MUST validate the Origin header"."""
    if visit.newest(Origin=ELSEWHERE).status < 400:
        yield problem(
            "A page of any other site may ask here.",
            "The header Origin does not arrive, or CSRF_TRUSTED_ORIGINS has too much in it.",
        )
    else:
        yield ok("Pages of other sites may not ask here.")
    parts = visit.wire.parts
    own = f"{parts.scheme}://{parts.netloc}"
    if visit.newest(Origin=own).status == 403:
        yield warning(
            f"A page of {own} itself may not ask here.",
            'Say the origin in DJANGO_MCP["URL"], and look at SECURE_PROXY_SSL_HEADER.',
        )


def hosts(visit: Visit) -> Findings:
    with suppress(Unreachable):  # who does not even answer does not let it in
        # Without the token: by that name, somebody else may be at this address.
        if is_answer_to(visit.newest(Host="elsewhere.invalid", Authorization=None)):
            yield warning(
                "It answers to any name in the header Host.",
                'ALLOWED_HOSTS has "*" in it, or the proxy puts in a name of its own.',
            )
            return
    yield ok("It answers to its own names alone.")


def is_answer_to(answer: Answer) -> bool:
    """Whether the MCP server let the request come to it."""
    return answer.status in (200, 401) and is_answer(answer.body)


def schemes(visit: Visit) -> Findings:
    parts = visit.wire.parts
    if parts.scheme == "https" and parts.port is None:
        plain = Wire(parts._replace(scheme="http").geturl(), min(visit.wire.seconds, 3))
        with suppress(Unreachable):
            if is_answer_to(plain.ask("POST", around(), DISCOVER)):
                yield warning(
                    "It answers over http too, where tokens would go in the clear.",
                    "Let the proxy redirect http to https.",
                )
    elif _is_in_the_clear(visit):
        yield warning("It is not https.", "Access tokens go through the net in the clear.")


def page(visit: Visit) -> Findings:
    """What a person sees who opens the address."""
    answer = visit.wire.ask("GET", {"Accept": http.HTML_TYPE})
    if answer.status == 200 and answer.kind == http.HTML_TYPE:
        yield ok("A browser is shown a page.")
    elif answer.status >= 500:
        yield warning(f"A browser is shown an error ({answer.status}).", "Its log says why.")
    else:
        yield note(f"A browser is shown no page (status {answer.status}).")


Look = tuple[str, Callable[[Visit], Findings]]
OUTSIDE: tuple[Look, ...] = (
    ("tokens", tokens),
    ("pages and hosts", origins),
    ("pages and hosts", hosts),
    ("other addresses", slashes),
    ("other addresses", schemes),
    ("browsers", page),
)
INSIDE: tuple[Look, ...] = (("tools", lists), ("sessions", sessions), ("HTTP+SSE", older))
