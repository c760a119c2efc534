"""
The resources and prompts of the conformance server.

Rule: the first resource is one that can be read, since the suite reads the first of the list.
"""

from __future__ import annotations

from typing import Annotated

import django_mcp as mcp

from .samples import PNG


@mcp.resource("test://static-text", permission=mcp.PUBLIC, mime_type="text/plain")
def static_text(request: mcp.Request) -> str:
    """A text that does not change."""
    return "This is the content of the static text resource."


@mcp.resource("test://static-binary", permission=mcp.PUBLIC, mime_type="image/png")
def static_binary(request: mcp.Request) -> bytes:
    """A picture that does not change."""
    return PNG


@mcp.resource("test://watched-resource", permission=mcp.PUBLIC, mime_type="text/plain")
def watched_resource(request: mcp.Request) -> str:
    """A text to subscribe to."""
    return "This is the content of the watched resource."


@mcp.resource("test://template/{id}/data", permission=mcp.PUBLIC, mime_type="application/json")
def template(request: mcp.Request, id: str) -> dict[str, str | bool]:
    """Data of any id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@mcp.prompt(permission=mcp.PUBLIC)
def test_simple_prompt(request: mcp.Request) -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


VALUES = mcp.Complete(["test", "testValue1", "testValue2", "paris", "party"])


@mcp.prompt(permission=mcp.PUBLIC)
def test_prompt_with_arguments(
    request: mcp.Request, arg1: Annotated[str, VALUES], arg2: Annotated[str, VALUES]
) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@mcp.prompt(permission=mcp.PUBLIC)
def test_prompt_with_embedded_resource(request: mcp.Request, resourceUri: str) -> list[mcp.Message]:
    """A prompt that brings a resource along."""
    text = "Embedded resource content for testing."
    return [
        mcp.Message(mcp.EmbeddedResource(resourceUri, text, "text/plain")),
        mcp.Message("Please process the embedded resource above."),
    ]


@mcp.prompt(permission=mcp.PUBLIC)
def test_prompt_with_image(request: mcp.Request) -> list[mcp.Message]:
    """A prompt that brings a picture along."""
    return [mcp.Message(mcp.Image(PNG)), mcp.Message("Please analyze the image above.")]
