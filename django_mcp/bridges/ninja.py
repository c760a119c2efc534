"""
django-ninja's operations as tools: ``NinjaTools``.

Each listed operation becomes a tool. A call sends a request through the project's ``MIDDLEWARE`` to
the operation at its URL, so that its throttles, decorators, pagination, exception handlers and
renderer apply. The caller of the tool is ``request.user``, and no header or cookie of the client
reaches the operation.

The operation's ``auth`` may deny the request, and most classes of ninja deny it because they need a
header. With ``replace_auth``, ``CallerAuth`` accepts the caller, and ninja does not call ``auth``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

# These imports come before all others. If django-ninja is missing, one of them fails first, and the
# error says what to install.
try:
    from ninja import NinjaAPI, Router
    from ninja.security import SessionAuth, SessionAuthSuperUser
    from ninja.security.apikey import APIKeyBase
    from ninja.security.http import HttpAuthBase
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] != "ninja":
        raise
    from django.core.exceptions import ImproperlyConfigured

    raise ImproperlyConfigured(
        "django_mcp.bridges.ninja needs django-ninja, which is not installed. "
        'Install "django-modelcontext[ninja]".'
    ) from error

from django.core.checks import CheckMessage, Warning
from django.core.exceptions import PermissionDenied
from django.http import Http404

from ..declarations.arguments import Arguments
from ..declarations.attribute_checks import did_you_mean
from ..declarations.declaration import Declaration, ascii_name
from ..declarations.elicitation_forms import asks_secret
from .api_tools import ApiOutput, ApiRequest, ApiTool, ApiTools, check_response, error_text
from .ninja_operations import (
    MountedOperation,
    OperationInput,
    OperationOutput,
    mounted_operations,
    with_links,
)
from .views.execution import ViewResponse
from .views.response_bodies import body_of, is_json, media_type

if TYPE_CHECKING:
    from ..declarations.request import Request
    from .views.requests import Body
    from .views.urls import Target

JSON = dict[str, Any]
SESSION_AUTH = (SessionAuth, SessionAuthSuperUser)  # they check request.user, which is the caller
CREDENTIALS = (HttpAuthBase, APIKeyBase)  # they need a header, cookie or query parameter
SCHEMA_HINT = "the operation returns an HttpResponse, or the renderer of the API changes the data"


class NinjaTools(ApiTools):
    """Operations of a ``NinjaAPI`` or ``Router`` as tools. Register a subclass with it.

    ``operations`` lists the names of view functions, or operation ids where several functions have
    the same name. No other operation can be called.

    If ``replace_auth`` is False, ninja calls the ``auth`` of the operations. If it is True, every
    signed-in caller is accepted instead, and ``request.auth`` is the caller's user. Session
    authentication, such as ``django_auth_superuser``, is always called.

    ``names`` and ``descriptions`` map entries of ``operations`` to the name and description of the
    tool. The defaults are the entry itself, and the operation's description or docstring.
    """

    _kind = "class of ninja operations"
    _list_attribute = "operations"

    operations: Sequence[str] = ()
    replace_auth: bool = False

    def _tools(self, entry: str) -> Iterator[Declaration]:
        (found,) = self._operations_of(entry)
        yield from (NinjaTool(self, found, method, entry) for method in found.methods)

    @cached_property
    def _mounted(self) -> list[MountedOperation]:
        return mounted_operations(self._subject)

    def _operations_of(self, entry: str) -> list[MountedOperation]:
        """Return the operations that an entry of ``operations`` names."""
        named = [one for one in self._mounted if one.function_name == entry]
        return named or [one for one in self._mounted if one.operation_id == entry]

    # Checks.

    def _subject_problems(self) -> Iterator[CheckMessage]:
        if not isinstance(self._subject, NinjaAPI | Router):
            shown = "nothing" if self._subject is None else repr(self._subject)
            hint = "Write @mcp.register(api) above the class."
            message = f"It is registered with {shown}, and not with a NinjaAPI or a Router."
            yield self._error(message, 200, hint)
        elif not self._entries:
            hint = "List names of view functions in operations: there is no default."
            yield self._error("operations is empty: nothing is exposed.", 201, hint)

    def _entry_problems(self) -> Iterator[CheckMessage]:
        known = [one.function_name for one in self._mounted]
        missing = [
            ("operations", one) for one in self._entries if known and not self._operations_of(one)
        ]
        for attribute, name in [*missing, *self._unlisted_keys()]:
            near = did_you_mean(name, known if attribute == self._list_attribute else self._entries)
            hint = near or f"There are {', '.join(sorted({*known}))}."
            yield self._error(f"{attribute}: there is no {name!r}.", 202, hint)
        for entry in self._entries:
            yield from self._ambiguity_problems(entry)
            if (remedy := self._unreachable(entry)) is not None:
                yield self._error(f"No URL leads to {entry!r}.", 204, remedy)

    def _ambiguity_problems(self, entry: str) -> Iterator[CheckMessage]:
        found = self._operations_of(entry)
        if len(found) > 1:
            ids = {one.operation_id for one in found}
            hint = f"Name one by its operation id: {', '.join(sorted(ids))}."
            if len(ids) == 1:
                hint = "Register the NinjaAPI to which one of them belongs."
            yield self._error(f"{len(found)} operations are called {entry!r}.", 203, hint)

    def _unreachable(self, entry: str) -> str | None:
        """Return what to do if no request of a tool leads to an operation, or None."""
        if not self._mounted:
            return "Add the router with api.add_router(), and api.urls to the URLconf."
        for found in self._operations_of(entry):
            if not found.methods:
                return (
                    "Give it one of GET, POST, PUT, PATCH and DELETE, and a path that no operation "
                    "before it has."
                )
            if not found.route.reversible:
                return "Name every group of the pattern of its URL, and use no alternatives there."
        return None


class NinjaTool(ApiTool):
    """One method of an operation as a tool."""

    _views: NinjaTools
    _input: OperationInput

    def __init__(
        self, views: NinjaTools, mounted: MountedOperation, method: str, entry: str
    ) -> None:
        name = views._name_of(entry, ascii_name(entry), method, mounted.methods)
        super().__init__(views, mounted.route, method, entry, name=name)
        self._mounted, self._operation = mounted, mounted.operation

    @property
    def _view_path(self) -> str:
        return f"{self._mounted.module}.{self._mounted.function_name}"

    def _make_schemas(self) -> Iterator[CheckMessage]:
        output = OperationOutput(self._operation)
        yield from (wrong := [*self._result_problems(), *self._input_problems()])
        if wrong:
            return
        yield from self._auth_problems()
        yield from self._clash_problems()
        yield from self._warnings(output)
        self.atomic = self._view_transaction
        self.description = self._views.descriptions.get(self._entry) or self._mounted.description
        schema = self._input.schema_with_definitions(self._schema())
        self._arguments = Arguments(schema=schema, handwritten=True)
        self._output = ApiOutput(self._output_schema(output), self.name, hint=SCHEMA_HINT)

    def _output_schema(self, output: OperationOutput) -> JSON | None:
        try:
            schema = output.schema
        except Exception:  # types of the project may have no schema, and it is not necessary
            return None
        return with_links(schema) if schema is not None and self._has_links else schema

    # Checks.

    def _result_problems(self) -> Iterator[CheckMessage]:
        kind = self._accept
        if getattr(self._operation, "stream_format", None) is not None:
            kind = "a stream"
        if kind == "a stream" or not is_json(kind):
            hint = "Leave it out, or use a renderer for JSON. The result of a tool is one value."
            yield self._error(f"{self._entry!r} returns {kind}, not JSON.", 208, hint)

    def _input_problems(self) -> Iterator[CheckMessage]:
        try:
            self._input = OperationInput(self._operation)
            self._input.check_flat()
        except Exception as error:  # types of the project may raise anything in their schema hooks
            hint = "Use types that have a JSON Schema, and objects only in a JSON body."
            message = f"The parameters of {self._entry!r} cannot be described: {error}"
            yield self._error(message, 209, hint)
            return
        self._query = self._input.query
        for one in self._input.unavailable:
            hint = "Make it optional, or leave the operation out: tools have only JSON arguments."
            message = f"{self._entry!r} requires the {one.source} {one.name!r}."
            yield self._error(message, 207, hint)

    def _auth_problems(self) -> Iterator[CheckMessage]:
        # Another class with the same operation may have added CallerAuth, which accepts only the
        # requests of that class.
        declared = self._operation.auth_callbacks
        callbacks = [one for one in declared if not isinstance(one, CallerAuth)]
        if self._views.replace_auth:
            self._accept_caller()
        elif callbacks and all(_needs_credentials(one) for one in callbacks):
            hint = (
                "Set replace_auth = True if every caller with the permission of the class may use "
                "it, or leave the operation out."
            )
            message = f"{self._entry!r} has auth, which denies all calls: they have no credentials."
            yield self._error(message, 205, hint)

    def _accept_caller(self) -> None:
        """Put ``CallerAuth`` before the ``auth`` of the operation."""
        operation = self._operation
        before: list[Any] = [*operation.auth_callbacks]
        # Session authentication checks the caller itself, and may require a superuser.
        if before and not any(isinstance(one, (CallerAuth, *SESSION_AUTH)) for one in before):
            # A new list: operations of one router share theirs.
            operation.auth_callbacks = [CallerAuth(is_async=operation.is_async), *before]

    def _clash_problems(self) -> Iterator[CheckMessage]:
        for name, where in self._clashes():
            hint = "Rename one of them. In the path of a router, declare it with Path[int]."
            yield self._error(f"{self._entry!r} takes {name!r} from {where}.", 206, hint)

    def _warnings(self, output: OperationOutput) -> Iterator[CheckMessage]:
        if not output.is_declared:
            hint = "Declare it: response=InvoiceOut, or response={204: None}."
            message = (
                f"{self._entry!r} declares no response: the caller sees everything that the "
                "function returns."
            )
            yield Warning(message, hint=hint, obj=self, id="django_mcp.W200")
        for one in self._input.arguments_from("path", "query", "body", "form"):
            if one.name not in self._page_names and asks_secret(one.name, one.schema):
                hint = "Leave the operation out, or let it read the secret elsewhere."
                message = (
                    f"{self._entry!r} takes the secret {one.name!r}. A language model would see "
                    "its value."
                )
                yield Warning(message, hint=hint, obj=self, id="django_mcp.W201")

    # Arguments.

    @property
    def _callbacks(self) -> Sequence[Any]:
        return self._mounted.callbacks

    @property
    def _accept(self) -> str:
        return str(self._operation.api.renderer.media_type)

    @property
    def _path_properties(self) -> JSON:
        typed = {one.name: one.schema for one in self._input.arguments_from("path")}
        # A converter in the URLconf, such as <int:pk>, says more than the type str.
        typed = {name: one for name, one in typed.items() if one != {"type": "string"}}
        return {name: typed.get(name, one) for name, one in self._route.properties.items()}

    @property
    def _body_schema(self) -> JSON:
        return self._input.body_schema

    @property
    def _has_links(self) -> bool:
        return self._mounted.has_cursor

    @property
    def _page_names(self) -> frozenset[str]:
        known = {one.name for one in self._input.query}
        return frozenset({"cursor", "page_size"} & known) if self._has_links else frozenset()

    # Execution.

    def _request(self, request: Request, target: Target, body: Body | None) -> ApiRequest:
        return NinjaRequest(self, request, target, body)

    def _request_body(self, arguments: JSON) -> Body | None:
        return self._input.body(arguments, self._method.upper())

    def _check_response(self, answer: ViewResponse) -> None:
        failed = answer.request.failed
        # If no handler of the API takes these, Django does, and its page has no message.
        if isinstance(failed, PermissionDenied | Http404):
            raise failed
        # The data of a server error may contain secrets, such as the text of an exception.
        has_detail = 400 <= answer.status < 500
        check_response(answer, self._detail(answer) if has_detail else "")

    def _detail(self, answer: ViewResponse) -> str:
        """Return what an error response says: one line for each field, or its ``detail``."""
        if not is_json(media_type(answer.response)):
            return ""
        try:
            data = json.loads(body_of(answer))
        except ValueError:
            return ""
        detail = data.get("detail") if isinstance(data, dict) else None
        if answer.status == 404 and str(detail).startswith("Not Found"):
            return ""  # from get_object_or_404, and under DEBUG it contains the name of the model
        if isinstance(detail, list) and all(map(_is_validation_error, detail)):
            data = {self._input.argument_path(one["loc"]): one["msg"] for one in detail}
        return error_text(data)


def _needs_credentials(callback: Any) -> bool:
    return isinstance(callback, CREDENTIALS) and not isinstance(callback, SESSION_AUTH)


def _is_validation_error(found: Any) -> bool:
    """Whether it is one of the errors of ninja's ``ValidationError``."""
    return isinstance(found, dict) and {"loc", "msg"} <= found.keys()


class NinjaRequest(ApiRequest):
    """The request of a call of a tool. ``replaces_auth`` is read by ``CallerAuth``."""

    def __init__(self, tool: NinjaTool, request: Request, target: Target, body: Any) -> None:
        self.replaces_auth = tool._views.replace_auth
        super().__init__(tool, request, target, body)


class CallerAuth:
    """An ``auth`` callback that accepts the caller of a tool of a class with ``replace_auth``.

    ninja calls it before the callbacks of the operation. It returns None for every other request,
    so that these callbacks decide: requests over HTTP, those of tools without ``replace_auth``, and
    those of anonymous callers.
    """

    def __init__(self, *, is_async: bool) -> None:
        # ninja awaits the callbacks of an asynchronous operation that have this attribute.
        self.is_async = is_async

    def __call__(self, request: Any) -> Any:
        if not isinstance(request, NinjaRequest) or not request.replaces_auth:
            return None
        caller = request.user if request.user.is_authenticated else None
        return _returning(caller) if self.is_async else caller


async def _returning(caller: Any) -> Any:
    return caller
