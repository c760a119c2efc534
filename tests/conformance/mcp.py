"""
What the conformance suite calls: it knows these things by their names and asks nothing else.

Rule: the public names of `django_mcp` alone, as a project writes them, and nobody signs in.
Lists show things in the order in which they are declared here: the first tool is one that
answers whatever it is called with.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import django_mcp as mcp

from .samples import PNG, WAV

PAUSE = 0.05  # seconds between two things that are said


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def test_simple_text(request: mcp.Request) -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def test_image_content(request: mcp.Request) -> mcp.Image:
    """Return a picture."""
    return mcp.Image(PNG)


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def test_audio_content(request: mcp.Request) -> mcp.Audio:
    """Return a sound."""
    return mcp.Audio(WAV)


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def test_embedded_resource(request: mcp.Request) -> mcp.EmbeddedResource:
    """Return a resource with its contents."""
    text = "This is an embedded resource content."
    return mcp.EmbeddedResource("test://embedded-resource", text, "text/plain")


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def test_multiple_content_types(request: mcp.Request) -> list[Any]:
    """Return a text, a picture and a resource."""
    data = '{"test":"data","value":123}'
    resource = mcp.EmbeddedResource("test://mixed-content-resource", data, "application/json")
    return ["Multiple content types test:", mcp.Image(PNG), resource]


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def test_error_handling(request: mcp.Request) -> str:
    """Fail, in words for the model."""
    raise mcp.ToolError("This tool intentionally returns an error for testing")


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def test_tool_with_progress(request: mcp.Request) -> str:
    """Tell three times how far it is."""
    for done in (0, 50, 100):
        request.progress(done, 100, f"{done} of 100")
        time.sleep(PAUSE)
    return "All of it is done."


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def test_tool_with_logging(request: mcp.Request) -> str:
    """Log three messages."""
    for message in ("started", "processing data", "completed"):
        request.log("info", f"Tool execution {message}")
        time.sleep(PAUSE)
    return "All of it is logged."


@mcp.register
class AnythingGoes(mcp.Tool):
    """Take what a schema of draft 2020-12 describes, written by hand."""

    name = "json_schema_2020_12_tool"
    permission = mcp.PUBLIC
    read_only = True
    input_schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }

    def handle(self, request: mcp.Request, **arguments: Any) -> str:
        return f"Received: {arguments}"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def test_reconnection(request: mcp.Request) -> str:
    """Let the client come back for the result."""
    request.release_stream()
    time.sleep(4 * PAUSE)
    return "The result was here when you came back."


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def test_x_mcp_header(
    request: mcp.Request, region: Annotated[str, mcp.Header("Region")] = "anywhere"
) -> str:
    """Take an argument that is mirrored into a header."""
    return f"In {region}."


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def test_logging_tool(request: mcp.Request) -> str:
    """Log something that nobody asked to hear."""
    request.log("error", "Nobody should hear this.")
    return "It was said to nobody."


@mcp.tool(permission=mcp.PUBLIC)
def test_trigger_tool_change(request: mcp.Request) -> str:
    """Announce that there are other tools."""
    mcp.notify_list_changed("tools")
    return "The tools changed."


@mcp.tool(permission=mcp.PUBLIC)
def test_trigger_prompt_change(request: mcp.Request) -> str:
    """Announce that there are other prompts."""
    mcp.notify_list_changed("prompts")
    return "The prompts changed."


from . import asking, reading  # noqa: E402, F401  the tools that ask, the resources and prompts
