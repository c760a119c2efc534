"""
Principals, the limits of their tokens, and related data.

- ``principal``: the user and the token of a call, the interfaces of token verifiers, and client
  networks for rate limits
- ``scopes``: limits on what a token may do
- ``group_membership``: the users whom a changed group or permission concerns
- ``kill_switches``: a cache of what administrators have switched off
- ``last_used``: when tokens were used, collected in memory and written later
"""
