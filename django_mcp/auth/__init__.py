"""
Principals, the limits of their tokens, and related data.

`principal` has the user and the token of a call, the interfaces of token verifiers, and client
networks for rate limits. `scopes` limits what a token may do. `group_membership` finds the users
whom a changed group or permission concerns. `kill_switches` caches what administrators have
switched off. `last_used` collects when tokens were used and writes it later.
"""
