"""What one part of the authorization server leaves on a request for another to find."""

OUR_VIEW = "mcp.oauth.view"  # in request.META, where no header can put it: they are HTTP_ there
