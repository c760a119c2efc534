"""
The atlas for real clients: small pages, something for everybody, and a log on stderr of what the
server makes of them.
"""

from example_project.settings import *  # noqa: F403
from example_project.settings import DJANGO_MCP as ATLAS
from example_project.settings import INSTALLED_APPS as APPS

DEBUG = False
INSTALLED_APPS = [*APPS, "tests.clients.door"]
DJANGO_MCP = ATLAS | {"PAGE_SIZE": 4}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"django_mcp": {"handlers": ["stderr"], "level": "INFO", "propagate": False}},
}
