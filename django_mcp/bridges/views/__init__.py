"""
Django's views as tools and as resources: ``ViewTools``.

- ``tools``: ``ViewTools``, which lists views by URL name
- ``view_tool``: one view as a tool or as a resource
- ``view_declaration``: the base class of both
- ``urls``: the project's URLs by name, their arguments and paths
- ``requests``: the ``HttpRequest`` that a view receives
- ``execution``: run a view through the project's ``MIDDLEWARE``
- ``results``: a view's response as a tool result or as resource contents
- ``response_bodies``: read the body of a response, and turn files into content
"""

from .tools import ViewTools as ViewTools
