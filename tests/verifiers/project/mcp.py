"""One tool, which tells whom the client acts for."""

import django_mcp as mcp


@mcp.tool(read_only=True)
def whoami(request) -> str:
    """Tell who is asking."""
    return request.user.get_username()
