"""The methods of the protocol: one short function each, in the table ``METHODS``.

A method returns the result in the form of the newest revision, or raises. ``protocol`` decides
which methods a client's revision has. A declaration that the caller may not use gets the same error
as one that does not exist.

``server_info`` and ``capabilities`` describe the server. A server has a capability only if it
declares something for it.

``referred``, ``typed`` and ``filled_in`` read the parameters of a request for completion. All of
them are checked before the project's code runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from django.http import Http404

from ..declarations.completions import completion
from ..declarations.content import write_icons
from ..declarations.declaration import decide
from ..declarations.resources import Resource
from ..declarations.ui import EXTENSION as UI_EXTENSION
from ..exceptions import Busy, InsufficientScope, InvalidArguments, ToolError
from ..protocol.connection import SERVER_INFO, SUBSCRIPTION_ID
from ..protocol.jsonrpc import (
    JSON,
    InvalidParams,
    MethodNotFound,
    ProtocolError,
    ResourceNotFound,
)
from ..protocol.revisions import LOG_LEVELS, SUPPORTED
from ..storage.jobs import break_behind
from . import listing, results
from .approvals import perform_approved
from .call_state import Invocation
from .errors import failure, is_bug
from .execution import DatabaseBroke, check, perform, with_database
from .throttling import MAX_SUBSCRIPTIONS, count_call_in_process, count_completion
from .visibility import visible

if TYPE_CHECKING:
    from ..declarations.generic_tools import RowsTool
    from ..declarations.server import Server
    from .call_state import CallRun


def server_info(server: Server) -> JSON:
    """Return the server's ``Implementation`` object, in the form of the newest revision."""
    info = server_name(server)
    about = (("description", server.description), ("websiteUrl", server.website))
    info |= {key: str(value) for key, value in about if value}
    icons = write_icons(server.icons)
    return info | ({"icons": icons} if icons else {})


def server_name(server: Server) -> JSON:
    """Return the short ``Implementation`` object: name, version and title.

    It is part of every result of revision 2026-07-28, so it has no icons.
    """
    name: JSON = {"name": server.public_name, "version": server.version}
    return name | ({"title": str(server.title)} if server.title else {})


def capabilities(server: Server) -> JSON:
    """Return the server's capabilities, with its experimental ones and its extensions."""
    has = server._catalog.capabilities
    found = {name: dict(features) for name, features in CAPABILITIES.items() if name in has}
    if server.experimental:
        found["experimental"] = server.experimental
    extensions: JSON = {UI_EXTENSION: {}} if server._catalog.has_ui else {}
    extensions |= server.extensions
    return found | ({"extensions": extensions} if extensions else {})


# The capabilities of the protocol, and their features. ``Catalog.capabilities`` are those that the
# declarations of a server give it.
CAPABILITIES: dict[str, JSON] = {
    "logging": {},
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
}


MAX_TEXT = 1000  # characters of the text to complete


def referred(run: CallRun) -> tuple[Any, Callable[[], ProtocolError]]:
    """Return the prompt or template to complete, and the error for a caller who may not use it.

    The error is the one for a name that does not exist.
    """
    ref = run.params.get("ref")
    kind, name, uri = (_member(ref, key) for key in ("type", "name", "uri"))
    catalog = run.server._catalog
    if kind == "ref/prompt" and isinstance(name, str):
        unknown = partial(InvalidParams, f"Unknown prompt: {name[:200]}")
        return _require(catalog.prompts.get(name), unknown)
    if kind == "ref/resource" and isinstance(uri, str):
        matching = (one for one, _ in catalog.at(uri))
        template = catalog.templates.get(uri) or next(matching, None)
        return _require(template, partial(ResourceNotFound, uri))
    raise InvalidParams("ref is required: ref/prompt with a name, or ref/resource with a uri.")


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _require(
    declaration: Any, unknown: Callable[[], ProtocolError]
) -> tuple[Any, Callable[[], ProtocolError]]:
    if declaration is None:
        raise unknown()
    return declaration, unknown


def typed(run: CallRun) -> tuple[str, str]:
    """Return the argument's name and the text typed so far, cut to ``MAX_TEXT`` characters."""
    argument = run.params.get("argument")
    name, text = _member(argument, "name"), _member(argument, "value")
    if not (isinstance(name, str) and isinstance(text, str)):
        raise InvalidParams("argument is required, with a name and a value.")
    return name, text[:MAX_TEXT]


def filled_in(run: CallRun) -> dict[str, str]:
    """Return the other arguments that the user has filled in."""
    context = run.params.get("context")
    before = context.get("arguments") if isinstance(context, dict) else context
    if before is None:
        return {}
    if not isinstance(before, dict) or not all(isinstance(v, str) for v in before.values()):
        raise InvalidParams("context.arguments is an object of strings.")
    return before


Method = Callable[["CallRun"], Awaitable[JSON]]
METHODS: dict[str, tuple[Method, str]] = {}
DISCOVER_TTL = 3_600_000  # milliseconds
# "Servers MUST NOT send InputRequiredResult responses on any other client requests."
ASKING = frozenset(("prompts/get", "resources/read", "tools/call"))


def method(name: str, capability: str = "") -> Callable[[Method], Method]:
    """Add a function to ``METHODS``. ``capability`` is what the server must have for it."""

    def enter(function: Method) -> Method:
        METHODS[name] = (function, capability)
        return function

    return enter


async def dispatch(run: CallRun) -> JSON:
    """Return the result of a call. Raise ``ProtocolError``, ``RunEnded`` or ``DatabaseBroke``."""
    function, capability = METHODS[run.call.method]
    if capability and capability not in run.server._catalog.capabilities:
        raise MethodNotFound(f"This server has no {capability}.")
    run.request._may_ask = run.call.method in ASKING
    try:
        result = await function(run)
        is_retry = run.call.input_responses is not None or run.call.request_state is not None
        # The result of a retry with answers MUST NOT be cached (server/utilities/caching).
        return result | listing.PRIVATE if is_retry and "ttlMs" in result else result
    except Busy:  # nothing has happened, so the client may send the same request again
        raise
    except Exception as error:
        if is_bug(error) and (broke := break_behind(error)) is not None:
            raise DatabaseBroke(broke) from error
        run.error = error
        return failure(error, run)


def lacks(server: Server, method: str) -> bool:
    """Whether ``method`` belongs to a capability that the server does not have."""
    capability = METHODS[method][1] if method in METHODS else ""
    return bool(capability) and capability not in server._catalog.capabilities


def _text(run: CallRun, name: str) -> str:
    """Return a required string parameter. Raise ``InvalidParams``."""
    value = run.params.get(name)
    if not isinstance(value, str):
        raise InvalidParams(f"{name} is required, as a string.")
    return value


def _arguments(run: CallRun, values: type = object) -> dict[str, Any]:
    arguments = run.params.get("arguments")
    if arguments is None:
        return {}
    if not isinstance(arguments, dict) or not all(
        isinstance(value, values) for value in arguments.values()
    ):
        raise InvalidParams("arguments is an object" + (" of strings." if values is str else "."))
    return arguments


# Opening.


@method("initialize")
async def initialize(run: CallRun) -> JSON:
    return {
        "protocolVersion": run.call.revision.name,
        "capabilities": capabilities(run.server),
        "serverInfo": server_info(run.server),
    } | _instructions(run)


@method("server/discover")
async def discover(run: CallRun) -> JSON:
    public = run.server._catalog.is_public
    return {
        "supportedVersions": list(SUPPORTED),
        "capabilities": capabilities(run.server),
        "_meta": {SERVER_INFO: server_info(run.server)},
        "ttlMs": DISCOVER_TTL,
        "cacheScope": "public" if public else "private",
    } | _instructions(run)


def _instructions(run: CallRun) -> JSON:
    text = run.server.instructions
    return {"instructions": str(text)} if text else {}


@method("ping")
async def ping(run: CallRun) -> JSON:
    return {}


@method("logging/setLevel", "logging")
async def set_level(run: CallRun) -> JSON:
    level = _text(run, "level")
    if level not in LOG_LEVELS:
        raise InvalidParams(f"level is one of {', '.join(LOG_LEVELS)}.")
    await run.session.set_log_level(level)
    return {}


# Tools.


@method("tools/list", "tools")
async def list_tools(run: CallRun) -> JSON:
    return await listing.page(run, "tools", run.server._catalog.tool_list)


@method("tools/call", "tools")
async def call_tool(run: CallRun) -> JSON:
    name, arguments = _text(run, "name"), _arguments(run)
    count_call_in_process(run, "calls")
    unknown = partial(InvalidParams, f"Unknown tool: {name[:200]}")
    listed = run.server._catalog.tools.get(name)
    if listed is None:
        raise unknown()
    tool = listed._called_tool(arguments) or listed
    read = partial(tool._arguments.read, arguments, run.mirrored)
    denied = None
    if tool._called_by is not None:
        read = partial(tool._arguments.read, arguments.get("arguments", {}))
        denied = partial(_unknown_model, run, tool._called_by, arguments, unknown)
    work = Invocation(
        tool,
        read=read,
        finish=partial(results.tool_result, tool, run.request),
        unknown=unknown,
        arguments=tool._arguments,
        atomic=tool._transaction,
        write=not tool.read_only,
        denied=denied,
    )
    if tool._approval:
        if tool._called_by is not None:
            arguments = arguments.get("arguments", {})
        return await perform_approved(run, work, arguments)
    return await perform(run, work)


def _unknown_model(
    run: CallRun, generic: RowsTool, arguments: JSON, unknown: Callable[[], ProtocolError]
) -> Exception:
    """Return the error for a caller who may not use the model that the arguments name.

    It is the error for a model that does not exist, and ``unknown()`` for callers who may use no
    model at all.
    """
    check(generic, run.request, unknown)
    return generic._refusal(arguments)


# Resources.


@method("resources/list", "resources")
async def list_resources(run: CallRun) -> JSON:
    return await listing.resources(run)


@method("resources/templates/list", "resources")
async def list_templates(run: CallRun) -> JSON:
    return await listing.page(run, "resourceTemplates", run.server._catalog.template_list)


@method("resources/read", "resources")
async def read_resource(run: CallRun) -> JSON:
    uri = _text(run, "uri")
    count_call_in_process(run, "calls")
    refusal: InsufficientScope | None = None
    for resource, variables in run.server._catalog.at(uri):
        try:
            return await perform(run, _read_work(run, resource, uri, variables))
        except InsufficientScope as error:
            refusal = refusal or error  # another template may match the URI and be allowed
        except (ResourceNotFound, InvalidArguments, Http404):
            continue
    try:
        raise refusal or ResourceNotFound(uri)
    finally:
        del refusal  # the traceback of the error has this frame: see ``failure``


def _read_work(run: CallRun, resource: Resource, uri: str, variables: dict[str, str]) -> Invocation:
    def read() -> dict[str, Any]:
        try:
            return resource._values(variables)
        except ToolError:
            raise ResourceNotFound(uri) from None

    return Invocation(
        resource,
        read=read,
        finish=partial(results.read_result, resource, uri, run.request),
        unknown=partial(ResourceNotFound, uri),
        arguments=resource._arguments,
    )


@method("resources/subscribe", "resources")
async def subscribe(run: CallRun) -> JSON:
    uri = _text(run, "uri")
    seen = await with_database(run, lambda: visible(run.request, [uri]))
    if uri not in seen:
        raise await _unseen(run, uri)
    await run.session.subscribe(uri, seen[uri])
    return {}


async def _unseen(run: CallRun, uri: str) -> Exception:
    """Return the error for a resource that the caller cannot see.

    It is ``InsufficientScope`` if a token with more scopes could see it, else ``ResourceNotFound``.
    """
    auth = run.principal.auth
    narrow = [one for one, _ in run.server._catalog.at(uri) if one._missing_scopes(auth)]

    def needed() -> tuple[str, ...]:
        missing = (decide(one, run.request).missing_scopes for one in narrow)
        return next(filter(None, missing), ())

    asked = await with_database(run, needed) if narrow else ()
    return InsufficientScope(asked) if asked else ResourceNotFound(uri)


@method("resources/unsubscribe", "resources")
async def unsubscribe(run: CallRun) -> JSON:
    await run.session.unsubscribe(_text(run, "uri"))
    return {}


@method("subscriptions/listen")
async def listen(run: CallRun) -> JSON:
    wanted = run.params.get("notifications")
    if not isinstance(wanted, dict):
        raise InvalidParams("notifications is required, as an object.")
    honoured, row_refs = await _honoured(run, wanted)
    await run.session.listen(run.call.id, honoured, row_refs)
    return {"_meta": {SUBSCRIPTION_ID: run.call.id}}


async def _honoured(run: CallRun, wanted: JSON) -> tuple[JSON, dict[str, str]]:
    """Reduce the filter of a listen request to what the server has and the caller can see.

    Also return the rows of the resources, by URI (``visibility.row_ref``).
    """
    seen: dict[str, str] = {}
    has = capabilities(run.server)
    kinds = {"toolsListChanged": "tools", "promptsListChanged": "prompts"}
    kinds["resourcesListChanged"] = "resources"
    honoured: JSON = {
        name: True for name, kind in kinds.items() if wanted.get(name) is True and kind in has
    }
    uris = wanted.get("resourceSubscriptions")
    if uris is not None and "resources" in has:
        if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
            raise InvalidParams("resourceSubscriptions is a list of URIs.")
        if len(uris) > MAX_SUBSCRIPTIONS:
            raise Busy("There are too many subscriptions.")
        seen = await with_database(run, lambda: visible(run.request, uris))
        honoured["resourceSubscriptions"] = [uri for uri in dict.fromkeys(uris) if uri in seen]
    return honoured, seen


# Prompts.


@method("prompts/list", "prompts")
async def list_prompts(run: CallRun) -> JSON:
    return await listing.page(run, "prompts", run.server._catalog.prompt_list)


@method("prompts/get", "prompts")
async def get_prompt(run: CallRun) -> JSON:
    name, arguments = _text(run, "name"), _arguments(run, str)
    count_call_in_process(run, "calls")
    unknown = partial(InvalidParams, f"Unknown prompt: {name[:200]}")
    prompt = run.server._catalog.prompts.get(name)
    if prompt is None:
        raise unknown()
    work = Invocation(
        prompt,
        read=partial(prompt._arguments.read_text, arguments),
        finish=partial(results.prompt_result, prompt, run.request),
        unknown=unknown,
        arguments=prompt._arguments,
    )
    return await perform(run, work)


# Completion.


@method("completion/complete", "completions")
async def complete(run: CallRun) -> JSON:
    count_call_in_process(run, "completions")
    (name, text), before = typed(run), filled_in(run)
    declaration, unknown = referred(run)

    def completed() -> JSON:
        check(declaration, run.request, unknown)
        count_completion(run)
        if name not in declaration._arguments.parameters and name not in declaration._completers:
            raise InvalidParams(f"There is no argument {name[:200]!r}.")
        completer = declaration._completers.get(name)
        run.request._may_ask = False
        values = completer(run.request, text, before) if completer else ()
        return completion(values)

    return {"completion": await with_database(run, completed)}
