"""Django's views as tools and as resources: ``ViewTools``."""

from .tools import ViewTools as ViewTools
