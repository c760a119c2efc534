"""A project that has put models of its own in the place of all of django-oauth-toolkit's."""
