"""What is for everybody, beside the atlas, which is for its users."""

import django_mcp as mcp


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def greet(request, name: str) -> dict[str, str]:
    """Greet whoever asks."""
    return {"greeting": f"Good day, {name}."}


@mcp.resource("greeting://door", permission=mcp.PUBLIC, mime_type="text/plain")
def door(request) -> str:
    """What stands on the door."""
    return "Come in."
