"""A project whose people sign in elsewhere, without the embedded authorization server."""
