"""
Bridges: expose existing Django code (model writes, forms and views) as MCP tools and resources.

A bridge grants no rights. A caller may do over MCP what the same user may do on the site, and the
project's own permission checks decide.
"""
