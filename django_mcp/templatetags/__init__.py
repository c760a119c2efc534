"""Template tags.

- ``mcp_ui``: the script of the page of a tool
"""
