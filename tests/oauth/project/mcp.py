"""A tool that returns the user, and one that needs the permission to change users."""

import django_mcp as mcp


@mcp.tool(read_only=True)
def whoami(request) -> str:
    """Return the name of the user."""
    return request.user.get_username()


@mcp.tool(permission="auth.change_user")
def rename(request, to: str) -> str:
    """Change the first name of the user."""
    request.user.first_name = to
    request.user.save(update_fields=["first_name"])
    return f"{request.user.get_username()} is {to}"
