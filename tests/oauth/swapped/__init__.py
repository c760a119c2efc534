"""A project that replaces all swappable models of django-oauth-toolkit."""
