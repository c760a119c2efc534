"""``Request``, the first argument of the project's functions.

It has the caller and the server, and asks the client.

A ``Request`` never waits for the client. To ask the client a question, the project's code calls a
method such as ``elicit``. The method looks for an answer that the client has already given. Without
one it raises ``InputRequired``, which ends this run of the call. When the answer arrives, the call
runs again from the start, in any process, with a new ``Request`` that knows the answer.

Progress and log messages go to a ``CallNotifier``, which sends them.

``request.can`` are the ``ClientCapabilities``: which questions the client supports.

``request.http`` is a Django ``HttpRequest`` for code that needs one. It has the server's public URL
and the user. It has no body and no headers of the client, so that no token reaches such code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, Never, Protocol, TypeVar, overload
from urllib.parse import urlsplit

from asgiref.sync import sync_to_async
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest

from ..auth.principal import Auth, Principal
from ..conf import settings
from ..exceptions import InputRequired, OnceNeeded, Stopped, Unsupported, WrongAnswer
from ..protocol.capabilities import lacking
from .questions import (
    MISSING,
    Elicit,
    Question,
    Root,
    Roots,
    Sample,
    Sampled,
    read_answer,
)
from .ui import EXTENSION as UI_EXTENSION
from .ui import MIME_TYPE

if TYPE_CHECKING:
    from django.forms import BaseForm
    from django.utils.functional import Promise
    from typing_extensions import TypeVar as TypeVarWithDefault

    from .server import Server

    StrOrPromise = str | Promise
    AsDict = type[BaseForm] | BaseForm | Mapping[str, Any]  # schemas whose answer is a dict
    D = TypeVarWithDefault("D", default=Never)  # the ``default`` of a question, where one is given

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ClientCapabilities:
    """``request.can``: which questions this client supports."""

    _offered: Mapping[str, Any]

    def _lacks(self, required: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of the client capabilities ``required`` that this client does not have."""
        return lacking(self._offered, required)

    def _has(self, name: str, *features: str) -> bool:
        return not self._lacks({name: {feature: {} for feature in features}})

    @property
    def elicit(self) -> bool:
        return self._has("elicitation", "form")

    @property
    def elicit_url(self) -> bool:
        return self._has("elicitation", "url")

    @property
    def sample(self) -> bool:
        return self._has("sampling")

    @property
    def sample_tools(self) -> bool:
        return self._has("sampling", "tools")

    @property
    def sample_context(self) -> bool:
        return self._has("sampling", "context")

    @property
    def roots(self) -> bool:
        return self._has("roots")

    @property
    def ui(self) -> bool:
        """Whether the client shows the page of a tool (the extension MCP Apps)."""
        types = (self.extension(UI_EXTENSION) or {}).get("mimeTypes")
        return isinstance(types, list) and MIME_TYPE in types

    def extension(self, name: str) -> Mapping[str, Any] | None:
        """Return the client's settings for an extension, or None if it does not have it."""
        found = (self._offered.get("extensions") or {}).get(name)
        return found if isinstance(found, Mapping) else None


class CallNotifier(Protocol):
    """Sends progress and log messages of a running call to its client."""

    def progress(self, done: float, total: float | None, message: str | None) -> None: ...

    def log(self, level: str, data: Any, logger: str | None) -> None: ...

    def release(self) -> None: ...

    async def apause(self) -> None: ...


class NoNotifier:
    """Sends nothing: for subscriptions, pages and tests, which have no client that listens."""

    def progress(self, done: float, total: float | None, message: str | None) -> None: ...

    def log(self, level: str, data: Any, logger: str | None) -> None: ...

    def release(self) -> None: ...

    async def apause(self) -> None: ...


@dataclass(slots=True)
class KnownAnswers:
    """The client's answers, and the values of ``once``, from earlier runs of a call.

    ``known`` are answers by the digest of their question. ``named`` are answers that the client
    sent with its request, by the key of the question. ``remembered`` are the values of ``once`` by
    their key. ``used`` are the digests and keys that this run has already asked for.
    """

    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    named: dict[str, dict[str, Any]] = field(default_factory=dict)
    remembered: dict[str, Any] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    @property
    def replaying(self) -> bool:
        """Whether this run still repeats what an earlier run did.

        The run then sends no messages, because the earlier run has sent them. It has caught up once
        it has used all answers and values of ``once``.
        """
        return not self.used.issuperset((*self.known, *self.remembered))


class StopFlag:
    """A flag that any thread may set, once. It needs no lock, because nothing waits for it."""

    is_set = False

    def set(self) -> None:
        self.is_set = True


class Request:
    """The call that a function of the project runs in. It is the function's first argument.

    It is not an ``HttpRequest``. ``.http`` is one, for code that needs it.

    ``method`` is the method of the call, such as "tools/call", and ``name`` the name of the tool or
    prompt, or the URI of the resource, as the client sent it. Both are "" without a call, as for
    subscriptions.

    ``offered`` returns the client's capabilities. ``stop`` is set when the call must stop.
    """

    def __init__(
        self,
        principal: Principal,
        server: Server,
        *,
        host: str | None = None,
        method: str = "",
        name: str = "",
        revision: str = "",
        client_info: Mapping[str, Any] | None = None,
        offered: Callable[[], Mapping[str, Any]] = dict,
        meta: Mapping[str, Any] | None = None,
        answers: KnownAnswers | None = None,
        notifier: CallNotifier | None = None,
        stop: StopFlag | None = None,
    ) -> None:
        self.principal, self.server, self._host, self.revision = principal, server, host, revision
        self.method, self.name = method, name
        self.client_info = client_info or {}
        self.meta = meta or {}
        self._answers = answers or KnownAnswers()
        self._notifier: CallNotifier = notifier or NoNotifier()
        self._offered, self._stop = offered, stop or StopFlag()
        self._occurrences: dict[str, int] = {}
        self._may_ask = True
        self._is_committing = False  # its queries are not stopped any more
        self._is_out_of_time = False  # it ran longer than its time limit
        self._queries, self._rows_written = 0, 0  # by the project's code, in threads

    @property
    def user(self) -> Any:
        """The user that the call acts as, or an ``AnonymousUser``. It is never lazy."""
        return self.principal.user

    @property
    def auth(self) -> Auth | None:
        """The scopes and application of the verified token, or None without a token."""
        return self.principal.auth

    @cached_property
    def can(self) -> ClientCapabilities:
        """Which questions the client supports."""
        return ClientCapabilities(self._offered())

    @property
    def cancelled(self) -> bool:
        """Whether the call must stop: the client or the server stopped it, or its time is over."""
        return self._stop.is_set or self._is_out_of_time

    @cached_property
    def http(self) -> HttpRequest:
        """An ``HttpRequest`` for code that needs one: with ``.user``, without body and token."""
        return http_request(self)

    # Messages.

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is. Values that do not increase are not sent."""
        self._raise_if_stopped()
        if not self._answers.replaying:
            self._notifier.progress(done, total, message)

    def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Send the client a log message of an RFC 5424 ``level``, from "debug" to "emergency".

        ``data`` is any JSON value. It is sent if the client has asked for this level. Do not write
        anything that the caller may not know.
        """
        self._raise_if_stopped()
        if not self._answers.replaying:
            self._notifier.log(level, data, logger)

    def release_stream(self) -> None:
        """Close the connection that waits for the response.

        The client fetches the response later.

        Use it in a long call, so that no connection stays open for it. It does nothing if the
        client cannot come back, which is so over stdio and without a session.
        """
        self._raise_if_stopped()
        if not self._answers.replaying:
            self._notifier.release()

    # Questions and steps.

    @overload
    def elicit(
        self,
        message: StrOrPromise,
        *,
        key: str | None = None,
        default: D = ...,
        url: str | None = None,
        timeout: float | None = None,
    ) -> bool | D: ...
    @overload
    def elicit(
        self,
        message: StrOrPromise,
        schema: AsDict,
        *,
        key: str | None = None,
        default: D = ...,
        timeout: float | None = None,
    ) -> dict[str, Any] | D: ...
    @overload
    def elicit(
        self,
        message: StrOrPromise,
        schema: type[V],
        *,
        key: str | None = None,
        default: D = ...,
        timeout: float | None = None,
    ) -> V | D: ...
    @overload  # a Literal, for example, whose type a parameter cannot be given
    def elicit(
        self,
        message: StrOrPromise,
        schema: Any,
        *,
        key: str | None = None,
        default: Any = ...,
        url: str | None = None,
        timeout: float | None = None,
    ) -> Any: ...
    def elicit(
        self,
        message: StrOrPromise,
        schema: Any = bool,
        *,
        key: str | None = None,
        default: Any = MISSING,
        url: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Ask the user, with a form of ``schema`` or something to do at ``url``.

        Return the value of the answer. If the user declines or cancels, return ``default``, or
        raise ``Declined`` without one. Raise ``Unsupported`` if the client cannot be asked, and
        ``TimedOut`` if nobody answers within ``timeout`` seconds. The code before the question runs
        again with the answer.
        """
        schema = None if url is not None else schema
        return self._ask_one(Elicit(message, schema, key, default, url, timeout))

    def sample(self, messages: Any, **options: Any) -> Sampled:
        """Let the client's model continue from ``messages``.

        Options are those of ``mcp.Sample``.
        """
        sampled: Sampled = self._ask_one(Sample(messages, **options))
        return sampled

    def roots(self, *, key: str | None = None, timeout: float | None = None) -> list[Root]:
        """Return the folders the client works in. A call asks for them once."""
        roots: list[Root] = self._ask_one(Roots(key=key, timeout=timeout))
        return roots

    def ask(self, /, **questions: Question) -> dict[str, Any]:
        """Ask several questions at once. Return the answers under the same names.

        In the request to the client a question has its ``key``, or its name here without one.
        """
        self._raise_if_stopped()
        keys = {name: question.key or name for name, question in questions.items()}
        if len(set(keys.values())) < len(keys):
            raise ValueError(
                f"Each question must have its own key, not {', '.join(keys.values())}."
            )
        found = {name: self._answer(keys[name], asked) for name, asked in questions.items()}
        missing = {name: ask for name, (ask, value) in found.items() if ask is not None}
        if missing:
            raise InputRequired(missing)
        return {name: value() for name, (_, value) in found.items()}

    @overload
    def once(self, key: str, function: Callable[[], Awaitable[V]]) -> V: ...
    @overload
    def once(self, key: str, function: Callable[[], V]) -> V: ...
    def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Run a step once for the whole call, however often the call runs.

        ``function`` runs and commits on its own. Its JSON value is stored and returned in every
        later run of the call.
        """
        self._raise_if_stopped()
        if key not in self._answers.remembered:
            self._check_may_ask()
            raise OnceNeeded(key, function)
        self._answers.used.add(key)
        return self._answers.remembered[key]

    def _ask_one(self, question: Question) -> Any:
        return self.ask(**{question.key or "": question})[question.key or ""]

    def _answer(self, name: str, question: Question) -> tuple[Any, Callable[[], Any]]:
        """Return the question if it must be sent, or else a function that returns its value.

        The first item is (key, digest, question) or None. The function raises the error that an
        answer means, such as ``Declined``. It is called when all questions of an ``ask`` have
        answers.
        """
        question = question.bind(self)
        wire = repr(question.wire())
        self._occurrences[wire] = self._occurrences.get(wire, 0) + 1
        digest = question.digest(self._occurrences[wire])
        asking = (name or digest, digest, question)
        answer = self._find(name, digest)
        if answer is None:
            self._check_askable(question)
            return asking, lambda: None
        try:
            value = read_answer(question, answer)
        except WrongAnswer as wrong:
            # Forget the answer. Otherwise each run would read it again and ask without end.
            self._answers.known.pop(digest, None)
            return (name or digest, digest, question.repeat_with_error(str(wrong))), lambda: None
        except Exception as error:
            return None, _raiser(error)
        return None, lambda: value

    def _find(self, name: str, digest: str) -> dict[str, Any] | None:
        """Return the client's answer to a question, by digest or by name, or None."""
        self._answers.used.add(digest)
        found = self._answers.known.get(digest)
        if found is None and name:
            # Use it for one question only. An equal question later in the call has another digest,
            # and is sent to the client.
            found = self._answers.named.pop(name, None)
            if found is not None:
                self._answers.known[digest] = found
        return found

    def _check_askable(self, question: Question) -> None:
        self._check_may_ask()
        question.check()
        lacking = self.can._lacks(question.required())
        if lacking:
            raise Unsupported(lacking)

    def _check_may_ask(self) -> None:
        if not self._may_ask:
            raise RuntimeError("The client cannot be asked in lists, completion or on commit.")

    def _raise_if_stopped(self) -> None:
        if self.cancelled:
            raise Stopped()

    # The same for asynchronous code.

    async def aprogress(
        self, done: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Like ``progress``. If messages come faster than they are written, wait first."""
        await self._notifier.apause()
        self.progress(done, total, message)

    async def alog(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Like ``log``. If messages come faster than they are written, wait first."""
        await self._notifier.apause()
        self.log(level, data, logger=logger)

    async def arelease_stream(self) -> None:
        self.release_stream()

    @overload
    async def aelicit(
        self,
        message: StrOrPromise,
        *,
        key: str | None = None,
        default: D = ...,
        url: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> bool | D: ...
    @overload
    async def aelicit(
        self,
        message: StrOrPromise,
        schema: AsDict,
        *,
        key: str | None = None,
        default: D = ...,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[str, Any] | D: ...
    @overload
    async def aelicit(
        self,
        message: StrOrPromise,
        schema: type[V],
        *,
        key: str | None = None,
        default: D = ...,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> V | D: ...
    @overload
    async def aelicit(
        self,
        message: StrOrPromise,
        schema: Any,
        *,
        key: str | None = None,
        default: Any = ...,
        url: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Any: ...
    async def aelicit(self, message: StrOrPromise, schema: Any = bool, **options: Any) -> Any:
        if Elicit(message, schema).needs_thread:
            return await sync_to_async(lambda: self.elicit(message, schema, **options))()
        return self.elicit(message, schema, **options)

    async def asample(self, messages: Any, **options: Any) -> Sampled:
        return self.sample(messages, **options)

    async def aroots(self, **options: Any) -> list[Root]:
        return self.roots(**options)

    async def aask(self, /, **questions: Question) -> dict[str, Any]:
        if any(question.needs_thread for question in questions.values()):
            return await sync_to_async(self.ask)(**questions)
        return self.ask(**questions)

    @overload
    async def aonce(self, key: str, function: Callable[[], Awaitable[V]]) -> V: ...
    @overload
    async def aonce(self, key: str, function: Callable[[], V]) -> V: ...
    async def aonce(self, key: str, function: Callable[[], Any]) -> Any:
        return self.once(key, function)


def _raiser(error: Exception) -> Callable[[], Any]:
    def value() -> Any:
        raise error

    return value


def http_request(request: Request) -> HttpRequest:
    """Return a GET request to the server's endpoint by the request's user."""
    made = WSGIRequest(environ(request))
    made.user = request.user
    return made


def environ(request: Request) -> dict[str, Any]:
    """Return the WSGI environment of an anonymous GET request to the server's endpoint.

    It contains no header of the client, so that the project's code cannot pass on its token.
    """
    origin = urlsplit(settings.URL)
    secure = origin.scheme == "https"
    host = request._host or origin.netloc
    address = urlsplit(f"//{host}")
    return {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": f"/{request.server.path}",
        "SCRIPT_NAME": "",
        "SERVER_NAME": address.hostname or "",
        "SERVER_PORT": str(address.port or (443 if secure else 80)),
        "HTTP_HOST": host,
        "wsgi.url_scheme": origin.scheme or "http",
        "wsgi.input": BytesIO(),
    }
