"""The defences of the authorization server, taken away one at a time: tests must notice.

``python -m tests.oauth.without`` does it to a copy. A module for each part of the attacks says what
is taken away: ``tokens``, ``refreshing``, ``consent``, ``clients``, ``documents``, ``resource``.
"""
