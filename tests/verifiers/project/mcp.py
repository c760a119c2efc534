"""One tool, which returns the user that the client acts for."""

import django_mcp as mcp


@mcp.tool(read_only=True)
def whoami(request) -> str:
    """Return the name of the user."""
    return request.user.get_username()
