"""Deliberate defects, applied one at a time to a copy of the project: a named test must fail.

A mutation shows that a test notices the loss of what it is cited for. There are two lists:

- ``threats``: the defences of the authorization server, by the threats that
  `docs/reference/oauth.md` lists. Every test that a mutation names must fail.
- ``requirements``: what the specification asks, by the rows of `tests/requirements/table`. At least
  one test that the row cites must fail.

Run them with ``python -m tests.mutations``.
"""
