"""
What the commands of ``manage.py`` are made of.

Rule: a command asks and tells; what it asks for is done by the rooms that do it for clients.
"""
