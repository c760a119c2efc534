"""
What people see of a server in a browser: the page at its address, and how to connect.

Rule: a page shows what its visitor may use and nothing else; it needs no script,
sets nothing and changes nothing.
"""
