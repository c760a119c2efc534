"""The atlas for real clients: small pages, and a log on stderr of what the server makes of them."""

from example_project.settings import *  # noqa: F403
from example_project.settings import DJANGO_MCP as ATLAS

DEBUG = False
DJANGO_MCP = ATLAS | {"PAGE_SIZE": 4}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"django_mcp": {"handlers": ["stderr"], "level": "INFO", "propagate": False}},
}
