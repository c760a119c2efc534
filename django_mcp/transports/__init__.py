"""
The ways in: Streamable HTTP and stdio.

Rule: a transport says who is let in and maps what is said to a pipe; what it means is for
``protocol`` and ``dispatch`` to say.
"""
