"""An independent judge: clients that know what must come, and tell what did not.

Rule: nothing of the server is imported, nor of Django or of the project that is served: what is
expected is computed from the seed of a call, by code of its own, and never read from a log.
"""
