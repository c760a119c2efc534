"""
The embedded authorization server: OAuth 2.1 on django-oauth-toolkit.

``dot_settings`` is for the project's settings module, so this package imports no models.
"""

from .conf import dot_settings as dot_settings

__all__ = ["dot_settings"]
