"""A project that writes to wherever it can while it serves MCP over stdio."""
