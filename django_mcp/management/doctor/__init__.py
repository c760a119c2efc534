"""
The checks of ``mcp_doctor``, and its findings.

Checks look at a server from outside, as clients do, and change nothing.
"""
