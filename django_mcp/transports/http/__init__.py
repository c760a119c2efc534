"""
Streamable HTTP: one endpoint, one consumer, all revisions.

Rule: a request is guarded first, then its caller is known, then it is read;
what needs no session is answered in ``stateless``, the rest in ``sessions``.
"""
