"""
The methods of the protocol: one short function each, in one table.

Rule: a method returns the canonical result - the newest revision's - or
raises. Which methods a client may call is its revision's business; what a
server does not have does not exist, and neither does what a caller may not use.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from django.http import Http404

from ..declare.completions import completion
from ..declare.effective import effective
from ..declare.resources import Resource
from ..exceptions import Busy, InsufficientScope, InvalidArguments, ToolError
from ..protocol.headers import check_parameters
from ..protocol.jsonrpc import JSON, InvalidParams, MethodNotFound, ProtocolError, ResourceNotFound
from ..protocol.revisions import LOG_LEVELS, SUPPORTED
from . import limits, listing, results
from .failures import failure
from .listening import MAX_SUBSCRIPTIONS
from .presentation import capabilities, is_capable, server_info
from .references import filled_in, referred, typed
from .refusals import check
from .running import Work, perform, with_database
from .visibility import visible

if TYPE_CHECKING:
    from ..declare.tools import Tool
    from .runs import Run

Method = Callable[["Run"], Awaitable[JSON]]
METHODS: dict[str, tuple[Method, str]] = {}
DISCOVER_TTL = 3_600_000
# "Servers MUST NOT send InputRequiredResult responses on any other client requests."
ASKING = frozenset(("prompts/get", "resources/read", "tools/call"))


def method(name: str, capability: str = "") -> Callable[[Method], Method]:
    """Enter a function into the table; ``capability`` is what the server must have for it."""

    def enter(function: Method) -> Method:
        METHODS[name] = (function, capability)
        return function

    return enter


async def dispatch(run: Run) -> JSON:
    """The canonical result of a call. Raises ``ProtocolError`` or ``Unwound``."""
    function, capability = METHODS[run.call.method]
    if capability and not is_capable(run.server, capability):
        raise MethodNotFound(f"This server has no {capability}.")
    run.request.asks = run.call.method in ASKING
    try:
        return _kept(run, await function(run))
    except Busy:  # nothing has happened: it can be tried again as it is
        raise
    except Exception as error:
        return failure(error, run)


def _kept(run: Run, result: JSON) -> JSON:
    """What answers brought about MUST NOT be cached (server/utilities/caching)."""
    retried = run.call.input_responses is not None or run.call.request_state is not None
    return result | listing.PRIVATE if retried and "ttlMs" in result else result


def _text(run: Run, name: str) -> str:
    """A required string among the parameters. Raises ``InvalidParams``."""
    value = run.params.get(name)
    if not isinstance(value, str):
        raise InvalidParams(f"{name} is required, as a string.")
    return value


def _arguments(run: Run, values: type = object) -> dict[str, Any]:
    arguments = run.params.get("arguments")
    if arguments is None:
        return {}
    if not isinstance(arguments, dict) or not all(
        isinstance(value, values) for value in arguments.values()
    ):
        raise InvalidParams("arguments is an object" + (" of strings." if values is str else "."))
    return arguments


def _limit(run: Run, kind: str) -> None:
    seconds = limits.wait(kind, run.principal.key, run.server.name)
    if seconds:
        raise ToolError(f"Too many {kind}. Try again in {math.ceil(seconds)} s.")


# Opening.


@method("initialize")
async def initialize(run: Run) -> JSON:
    return {
        "protocolVersion": run.call.revision.name,
        "capabilities": capabilities(run.server),
        "serverInfo": server_info(run.server),
    } | _instructions(run)


@method("server/discover")
async def discover(run: Run) -> JSON:
    public = run.server.catalog.is_public
    return {
        "supportedVersions": list(SUPPORTED),
        "capabilities": capabilities(run.server),
        "ttlMs": DISCOVER_TTL,
        "cacheScope": "public" if public else "private",
    } | _instructions(run)


def _instructions(run: Run) -> JSON:
    text = run.server.instructions
    return {"instructions": str(text)} if text else {}


@method("ping")
async def ping(run: Run) -> JSON:
    return {}


@method("logging/setLevel", "logging")
async def set_level(run: Run) -> JSON:
    level = _text(run, "level")
    if level not in LOG_LEVELS:
        raise InvalidParams(f"level is one of {', '.join(LOG_LEVELS)}.")
    await run.session.set_log_level(level)
    return {}


# Tools.


@method("tools/list", "tools")
async def list_tools(run: Run) -> JSON:
    tools = list(run.server.catalog.tools.values())
    return await listing.page(run, "tools", tools, lambda tool: tool.definition())


@method("tools/call", "tools")
async def call_tool(run: Run) -> JSON:
    name, arguments = _text(run, "name"), _arguments(run)
    _limit(run, "calls")
    unknown = InvalidParams(f"Unknown tool: {name[:200]}")
    tool = run.server.catalog.tools.get(name)
    if tool is None:
        raise unknown
    return await perform(run, _tool_work(run, tool, arguments, unknown))


def _tool_work(run: Run, tool: Tool, arguments: dict[str, Any], unknown: ProtocolError) -> Work:
    return Work(
        tool,
        read=lambda: _read_arguments(run, tool, arguments),
        finish=lambda value: results.tool_result(tool, value, run.request),
        unknown=unknown,
        arguments=tool.arguments,
        atomic=tool.transaction,
        write=not tool.read_only,
    )


def _read_arguments(run: Run, tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    if run.mirrored is not None:
        check_parameters(run.mirrored, arguments, tool.mirrored)
    return tool.arguments.read(arguments)


# Resources.


@method("resources/list", "resources")
async def list_resources(run: Run) -> JSON:
    return await listing.resources(run)


@method("resources/templates/list", "resources")
async def list_templates(run: Run) -> JSON:
    templates = list(run.server.catalog.templates.values())
    return await listing.page(run, "resourceTemplates", templates, lambda one: one.definition())


@method("resources/read", "resources")
async def read_resource(run: Run) -> JSON:
    uri = _text(run, "uri")
    _limit(run, "calls")
    refusal: InsufficientScope | None = None
    for resource, variables in run.server.catalog.at(uri):
        try:
            return await perform(run, _read_work(run, resource, uri, variables))
        except InsufficientScope as error:
            refusal = refusal or error  # another template may be meant
        except (ResourceNotFound, InvalidArguments, Http404):
            continue
    raise refusal or ResourceNotFound(uri)


def _read_work(run: Run, resource: Resource, uri: str, variables: dict[str, str]) -> Work:
    def read() -> dict[str, Any]:
        try:
            return resource.values(variables)
        except ToolError:
            raise ResourceNotFound(uri) from None

    return Work(
        resource,
        read=read,
        finish=lambda value: results.read_result(resource, uri, value),
        unknown=ResourceNotFound(uri),
        arguments=resource.arguments,
    )


@method("resources/subscribe", "resources")
async def subscribe(run: Run) -> JSON:
    uri = _text(run, "uri")
    seen = await with_database(run, lambda: visible(run.request, [uri]))
    if uri not in seen:
        raise await _unseen(run, uri)
    await run.session.subscribe(uri, seen[uri])
    return {}


async def _unseen(run: Run, uri: str) -> Exception:
    """What to say of a resource that is not seen: whether a broader token might see it."""
    narrow = [one for one, _ in run.server.catalog.at(uri) if one.lacking(run.request)]

    def needed() -> tuple[str, ...]:
        return next((found for one in narrow if (found := effective(one, run.request).needed)), ())

    asked = await with_database(run, needed) if narrow else ()
    return InsufficientScope(asked) if asked else ResourceNotFound(uri)


@method("resources/unsubscribe", "resources")
async def unsubscribe(run: Run) -> JSON:
    await run.session.unsubscribe(_text(run, "uri"))
    return {}


@method("subscriptions/listen")
async def listen(run: Run) -> JSON:
    wanted = run.params.get("notifications")
    if not isinstance(wanted, dict):
        raise InvalidParams("notifications is required, as an object.")
    honoured, places = await _honoured(run, wanted)
    await run.session.listen(run.call.id, honoured, places)
    return {"_meta": {"io.modelcontextprotocol/subscriptionId": run.call.id}}


async def _honoured(run: Run, wanted: JSON) -> tuple[JSON, dict[str, str]]:
    """What of a listen's filter this server has, and this caller may see; and where that is."""
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
async def list_prompts(run: Run) -> JSON:
    prompts = list(run.server.catalog.prompts.values())
    return await listing.page(run, "prompts", prompts, lambda prompt: prompt.definition())


@method("prompts/get", "prompts")
async def get_prompt(run: Run) -> JSON:
    name, arguments = _text(run, "name"), _arguments(run, str)
    _limit(run, "calls")
    unknown = InvalidParams(f"Unknown prompt: {name[:200]}")
    prompt = run.server.catalog.prompts.get(name)
    if prompt is None:
        raise unknown
    work = Work(
        prompt,
        read=lambda: prompt.arguments.read_text(arguments),
        finish=lambda value: results.prompt_result(prompt.description, value),
        unknown=unknown,
        arguments=prompt.arguments,
    )
    return await perform(run, work)


# Completion.


@method("completion/complete", "completions")
async def complete(run: Run) -> JSON:
    _limit(run, "completions")
    (name, text), before = typed(run), filled_in(run)
    thing, unknown = referred(run)

    def completed() -> JSON:
        check(thing, run.request, unknown)
        if name not in thing.arguments.parameters and name not in thing.completers:
            raise InvalidParams(f"There is no argument {name[:200]!r}.")
        completer = thing.completers.get(name)
        run.request.asks = False
        found = completer(run.request, text, before) if completer else ()
        return completion(found)

    return {"completion": await with_database(run, completed)}
