"""The site of the documentation page, and simulated users who sign in at a provider."""

from __future__ import annotations

import atexit
import html
import json
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from tests.oauth import agent
from tests.oauth.site import manage
from tests.servers import Served
from tools.ports import free_port

from .provider import Provider

APPLICATION = "tests.oauth.third.project.asgi:application"
SETTINGS = "tests.oauth.third.project.settings"
LINK = re.compile(r'href="([^"]*/oidc/(\w+)/login/[^"]*)"')


@cache
def _template() -> Path:
    """Return a folder with a migrated database, to be copied."""
    folder = Path(tempfile.mkdtemp(prefix="django_mcp_third_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    nowhere = "http://127.0.0.1:9"
    environ = {"DJANGO_SETTINGS_MODULE": SETTINGS, "SITE_URL": "http://127.0.0.1",
               "COMPANY": nowhere, "OTHER": nowhere}  # fmt: skip
    manage(folder, environ, "migrate", "-v0")
    return folder


class ThirdSite:
    """The folder, the URL and the management commands of the site."""

    def __init__(self, folder: Path, company: Provider, other: Provider) -> None:
        self.folder, self.port = folder, free_port()
        self.origin = f"http://127.0.0.1:{self.port}"
        self.endpoint = f"{self.origin}/mcp"
        self.environ = {
            "DJANGO_SETTINGS_MODULE": SETTINGS, "SITE_URL": self.origin, "COMPANY": company.name,
            "OTHER": other.name,
        }  # fmt: skip
        shutil.copytree(_template(), folder, dirs_exist_ok=True)

    def manage(self, *arguments: str, **settings: Any) -> str:
        environ = self.environ | {"MORE": json.dumps(settings)}
        return manage(self.folder, environ, *arguments)

    def run(self, code: str) -> str:
        return self.manage("shell", "-v0", "-c", code).strip()

    def serve(self) -> Served:
        given: dict[str, Any] = {"application": APPLICATION, "port": self.port}
        return Served("daphne", self.folder, **given, **self.environ)


class Guest(agent.Person):
    """A user who signs in by an account at a provider."""

    def __init__(self, account: str, at: str = "company", allow: bool = True) -> None:
        super().__init__(account, allow)
        self.at = at
        self.signed_in = 0  # how often it was asked for at the provider

    async def _signed_in(self, web: Any, page: Any) -> Any:
        if page.url.path == "/oauth/authorize":
            return page
        there = await self._sent_away(web, page)
        self.signed_in += 1
        return await web.post(there.url, data={"account": self.name}, follow_redirects=True)

    async def _sent_away(self, web: Any, page: Any) -> Any:
        """Follow the page that lists the providers, and the one that confirms the redirect."""
        (link,) = {html.unescape(url) for url, name in LINK.findall(page.text) if name == self.at}
        sure = await web.get(urljoin(str(page.url), link))
        return await web.post(sure.url, data=agent.fields(sure), follow_redirects=True)
