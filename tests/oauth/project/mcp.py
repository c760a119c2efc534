"""A tool that tells whom the client acts for, and one for who may change users."""

import django_mcp as mcp


@mcp.tool(read_only=True)
def whoami(request) -> str:
    """Tell who is asking."""
    return request.user.get_username()


@mcp.tool(permission="auth.change_user")
def rename(request, to: str) -> str:
    """Give whoever is asking another first name."""
    request.user.first_name = to
    request.user.save(update_fields=["first_name"])
    return f"{request.user.get_username()} is {to}"
