"""A real project that shows each part of `django_mcp` in use: an atlas, and people's trips."""
