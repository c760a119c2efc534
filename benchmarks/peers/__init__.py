"""The others: each module serves the same tool at `/mcp`, as its own documentation says."""
