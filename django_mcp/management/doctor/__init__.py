"""
What ``mcp_doctor`` looks at, and how it says what it found.

Rule: it looks from outside where clients do, and changes nothing.
"""
