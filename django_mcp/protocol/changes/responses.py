"""Changes to what the server sends: results and errors of requests, and its notifications.

``RESULTS`` converts a result to an older revision. The subjects are methods. A result is in the
form of the newest revision first, and each function undoes one change.

``ERRORS`` converts the ``error`` member of a response, given its exception. A revision never gets
an error code that it does not define, but one of JSON-RPC instead.

``NOTIFICATIONS`` converts parameters. ``Revision.sends`` lists the notifications of a revision.
"""

from __future__ import annotations

from django_mcp.protocol.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    RESOURCE_NOT_FOUND,
    URL_ELICITATION_REQUIRED,
    HeaderMismatch,
    MissingCapability,
    ResourceNotFound,
    UnsupportedVersion,
    UrlElicitationRequired,
)

from . import Changelog
from .schemas import (
    JSON,
    Edit,
    as_object_schema,
    each,
    meta_without,
    plain_properties,
    text,
    within,
    without,
    wrap_value,
)

RESULTS = Changelog()
introduced_in = RESULTS.introduced_in

TOOLS = "tools/list"
CALL = "tools/call"
PROMPTS = "prompts/list"
RESOURCES = "resources/list"
TEMPLATES = "resources/templates/list"
READ = "resources/read"
GET_PROMPT = "prompts/get"

# Where the definitions of a list result are.
DEFINITIONS = {
    TOOLS: "tools",
    PROMPTS: "prompts",
    RESOURCES: "resources",
    TEMPLATES: "resourceTemplates",
}
CONTENT = (CALL, GET_PROMPT)
CACHEABLE = (*DEFINITIONS, READ, "server/discover")

NOTIFICATIONS = Changelog()
notifications_introduced_in = NOTIFICATIONS.introduced_in


def _definitions(result: JSON, edit: Edit) -> JSON:
    """Return ``result`` with ``edit`` applied to every definition of a list."""
    for key in DEFINITIONS.values():
        result = each(result, key, edit)
    return result


def _blocks(result: JSON, edit: Edit) -> JSON:
    """Return ``result`` with ``edit`` applied to every content block, of a tool or of a prompt."""
    result = each(result, "messages", lambda message: within(message, "content", edit))
    return each(result, "content", edit)


@introduced_in("2026-07-28")
def result_type(result: JSON) -> JSON:
    """Every result has a ``resultType``."""
    if result.get("resultType", "complete") != "complete":
        raise ValueError("Only the newest revisions have results that are not complete.")
    return without(result, "resultType")


@introduced_in("2026-07-28")
def server_identity(result: JSON) -> JSON:
    """Every result contains the server's name and version."""
    return meta_without(result, "io.modelcontextprotocol/serverInfo")


@introduced_in("2026-07-28", *CACHEABLE)
def cache_hints(result: JSON) -> JSON:
    """Results of lists and reads say how long, and for whom, they may be cached."""
    return without(result, "ttlMs", "cacheScope")


@introduced_in("2026-07-28", TOOLS)
def any_schema(result: JSON) -> JSON:
    """Schemas of tools may use any keyword, and outputs may have any type."""

    def plain(tool: JSON) -> JSON:
        tool = within(tool, "inputSchema", plain_properties)
        return within(
            tool, "outputSchema", lambda schema: plain_properties(as_object_schema(schema))
        )

    return each(result, "tools", plain)


@introduced_in("2026-07-28", CALL)
def any_structured_content(result: JSON) -> JSON:
    """Structured content may be any JSON value, not only an object."""
    return within(result, "structuredContent", wrap_value)


@introduced_in("2026-07-28", "initialize")
def extensions(result: JSON) -> JSON:
    """Capabilities name optional extensions."""
    return within(result, "capabilities", lambda capabilities: without(capabilities, "extensions"))


@introduced_in("2025-11-25", *DEFINITIONS)
def icons(result: JSON) -> JSON:
    """Definitions carry icons."""
    return _definitions(result, lambda item: without(item, "icons"))


@introduced_in("2025-11-25", *CONTENT)
def link_icons(result: JSON) -> JSON:
    """Links to resources carry icons."""
    return _blocks(result, lambda block: without(block, "icons"))


@introduced_in("2025-11-25", "initialize")
def server_icons(result: JSON) -> JSON:
    """The server has icons and a web site."""
    return within(result, "serverInfo", lambda info: without(info, "icons", "websiteUrl"))


@introduced_in("2025-11-25", "initialize")
def server_description(result: JSON) -> JSON:
    """The server describes itself."""
    return within(result, "serverInfo", lambda info: without(info, "description"))


@introduced_in("2025-06-18", TOOLS)
def tool_titles(result: JSON) -> JSON:
    """Tools have a title in addition to their name; before, only their annotations had one."""

    def edit(tool: JSON) -> JSON:
        if "title" not in tool:
            return tool
        annotations = {"title": tool["title"]} | tool.get("annotations", {})
        return without(tool, "title") | {"annotations": annotations}

    return each(result, "tools", edit)


@introduced_in("2025-06-18", PROMPTS, RESOURCES, TEMPLATES)
def titles(result: JSON) -> JSON:
    """Definitions and the arguments of prompts have a title in addition to their name."""

    def strip(item: JSON) -> JSON:
        return each(without(item, "title"), "arguments", lambda each_: without(each_, "title"))

    return _definitions(result, strip)


@introduced_in("2025-06-18", "initialize")
def server_title(result: JSON) -> JSON:
    """The server has a title in addition to its name."""
    return within(result, "serverInfo", lambda info: without(info, "title"))


@introduced_in("2025-06-18", *DEFINITIONS)
def definition_metadata(result: JSON) -> JSON:
    """Definitions carry metadata."""
    return _definitions(result, lambda item: without(item, "_meta"))


@introduced_in("2025-06-18", TOOLS)
def output_schemas(result: JSON) -> JSON:
    """Tools describe their structured output."""
    return each(result, "tools", lambda tool: without(tool, "outputSchema"))


@introduced_in("2025-06-18", CALL)
def structured_content(result: JSON) -> JSON:
    """Tools return structured content beside its text."""
    return without(result, "structuredContent")


@introduced_in("2025-06-18", RESOURCES, TEMPLATES)
def last_modified(result: JSON) -> JSON:
    """Annotations say when a resource was last modified."""
    return _definitions(result, without_last_modified)


@introduced_in("2025-06-18", *CONTENT)
def block_last_modified(result: JSON) -> JSON:
    """Annotations of content say when it was last modified."""
    return _blocks(result, without_last_modified)


def without_last_modified(item: JSON) -> JSON:
    """Return ``item`` without ``lastModified`` in its annotations."""
    return within(item, "annotations", lambda annotations: without(annotations, "lastModified"))


@introduced_in("2025-06-18", *CONTENT)
def resource_links(result: JSON) -> JSON:
    """A block may link to a resource; before, a text block has its name and URI."""

    def as_text(block: JSON) -> JSON:
        if block["type"] != "resource_link":
            return block
        return text(f"{block.get('title') or block['name']}: {block['uri']}", block)

    return _blocks(result, as_text)


@introduced_in("2025-06-18", *CONTENT)
def block_metadata(result: JSON) -> JSON:
    """Content carries metadata."""
    return _blocks(result, lambda block: within(without(block, "_meta"), "resource", _without_meta))


@introduced_in("2025-06-18", READ)
def contents_metadata(result: JSON) -> JSON:
    """The contents of resources carry metadata."""
    return each(result, "contents", _without_meta)


def _without_meta(item: JSON) -> JSON:
    return without(item, "_meta")


@introduced_in("2025-03-26", TOOLS)
def tool_annotations(result: JSON) -> JSON:
    """Tools carry hints about their behaviour."""
    return each(result, "tools", lambda tool: without(tool, "annotations"))


@introduced_in("2025-03-26", *CONTENT)
def audio(result: JSON) -> JSON:
    """A block may be audio; before, a text block replaces it."""
    return _blocks(result, without_audio)


def without_audio(block: JSON) -> JSON:
    """Return ``block``, or a text block that replaces it if it is audio."""
    return text(f"[audio: {block['mimeType']}]", block) if block["type"] == "audio" else block


@introduced_in("2025-03-26", "initialize")
def completions(result: JSON) -> JSON:
    """Completion is a capability of its own."""
    return within(result, "capabilities", lambda capabilities: without(capabilities, "completions"))


@notifications_introduced_in("2026-07-28")
def subscription_id(params: JSON) -> JSON:
    """Notifications of a subscription contain its id."""
    return meta_without(params, "io.modelcontextprotocol/subscriptionId")


@notifications_introduced_in(
    "2025-11-25",
    "notifications/cancelled",
    "notifications/message",
    "notifications/progress",
    "notifications/resources/updated",
)
def metadata(params: JSON) -> JSON:
    """The parameters of all notifications carry metadata."""
    return without(params, "_meta")


@notifications_introduced_in("2025-03-26", "notifications/progress")
def progress_message(params: JSON) -> JSON:
    """Progress notifications have a message."""
    return without(params, "message")


ERRORS = Changelog()
errors_introduced_in = ERRORS.introduced_in


@errors_introduced_in("2026-07-28", ResourceNotFound)
def not_found_is_invalid(error: JSON, cause: ResourceNotFound) -> JSON:
    """An unknown resource is an invalid parameter; before, it had its own error code."""
    return error | {"code": RESOURCE_NOT_FOUND}


@errors_introduced_in("2026-07-28", UnsupportedVersion)
def unsupported_version(error: JSON, cause: UnsupportedVersion) -> JSON:
    """An unsupported version has its own error code; before, it was an invalid parameter."""
    return error | {"code": INVALID_PARAMS}


@errors_introduced_in("2026-07-28", MissingCapability)
def missing_capability(error: JSON, cause: MissingCapability) -> JSON:
    """A capability that the client did not declare has its own error code."""
    return error | {"code": INVALID_REQUEST}


@errors_introduced_in("2026-07-28", HeaderMismatch)
def header_mismatch(error: JSON, cause: HeaderMismatch) -> JSON:
    """Headers that differ from the body have their own error code."""
    return error | {"code": INVALID_REQUEST}


@errors_introduced_in("2026-07-28", UrlElicitationRequired)
def no_url_error(error: JSON, cause: UrlElicitationRequired) -> JSON:
    """Servers ask for input by results; before, an error listed the pages to visit first."""
    data = {"elicitations": cause.elicitations}
    return error | {"code": URL_ELICITATION_REQUIRED, "data": data}


@errors_introduced_in("2025-11-25", UrlElicitationRequired)
def url_mode(error: JSON, cause: UrlElicitationRequired) -> JSON:
    """An error may name pages that the user has to visit before the request can succeed."""
    return without(error, "data") | {"code": INVALID_REQUEST}
