"""
Rows: how a model's rows are whitelisted, written, named, searched and paged.

Rule: Django and the standard library alone. What is asked here is of a model
and of names; who asks, and over which protocol, is not known here.
"""
