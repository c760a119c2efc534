"""
The conversation of MCP, without I/O: decoded messages in, meanings and messages out.

The rule: the standard library alone, and nothing here reads, writes, waits or calls back.
"""
