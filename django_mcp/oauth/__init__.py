"""
The embedded authorization server: OAuth 2.1 on django-oauth-toolkit.

``dot_settings`` is for the project's settings, which are read before any app is there.
"""

from .conf import dot_settings as dot_settings

__all__ = ["dot_settings"]
