"""bolt-mcp: an async tool on the server that it brings, written in Rust.

python -m benchmarks.peers.bolt PORT
"""

import os
import sys

import django
from django.conf import settings
from django.core.management import call_command

if not settings.configured:
    settings.configure(
        SECRET_KEY="benchmark",
        ALLOWED_HOSTS=["*"],
        INSTALLED_APPS=["django_bolt"],
        ROOT_URLCONF="benchmarks.peers.bolt",
        BOLT_API=["benchmarks.peers.bolt:api"],
        USE_TZ=True,
    )
    django.setup()

from bolt_mcp import MCP  # noqa: E402
from django_bolt import BoltAPI  # noqa: E402

urlpatterns: list[object] = []
api = BoltAPI()
server = MCP("benchmark", "1", json_response=os.environ.get("ANSWERS") == "json")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


api.mount_mcp(server)

if __name__ == "__main__":
    call_command("runbolt", host="127.0.0.1", port=int(sys.argv[1]), processes=1, no_admin=True)
