"""The files that the guide shows, as the tests use them."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHOWN = ROOT / "docs/deploy"
GUIDE = ROOT / "docs/how-to/deploy.md"
SITE_BESIDE_WSGI = SHOWN / "nginx-wsgi.conf"
UNIT, SITE, CONTAINER = SHOWN / "shop@.service", SHOWN / "nginx.conf", SHOWN / "Containerfile"
MANAGE = SHOWN / "shop-manage"
APPLICATION = "tests.hosts.asgi:application"


def env() -> dict[str, str]:
    """Return the variables of ``shop.env``."""
    lines = (SHOWN / "shop.env").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def service() -> list[tuple[str, str]]:
    """Return the settings of the systemd unit."""
    pairs = re.findall(r"^(\w+)=(.*)$", UNIT.read_text("utf-8"), re.M)
    assert pairs
    return pairs


def by_systemd(address: str, port: int) -> list[str]:
    """Return the command of the systemd unit, with another address."""
    (line,) = [value for name, value in service() if name == "ExecStart"]
    program, *words = shlex.split(line.replace("${BIND}", address).replace("%i", str(port)))
    return _ours(Path(program).name, words)


def by_container(port: int) -> list[str]:
    """Return the command of the container, with another port."""
    found = re.search(r"^CMD \[(.*)\]$", CONTAINER.read_text("utf-8"), re.M)
    assert found is not None
    program, *words = re.findall(r'"([^"]*)"', found[1])
    return _ours(program, [str(port) if word == "8000" else word for word in words])


def beside_wsgi() -> list[list[str]]:
    """Return the guide's commands for a site on WSGI: its server, and the ASGI server."""
    section = GUIDE.read_text("utf-8").partition("## A site that stays on WSGI")[2]
    site, asgi = re.findall(r"^    ((?:gunicorn|uvicorn) .*)$", section.partition("\n## ")[0], re.M)
    wsgi, *words = shlex.split(site)
    assert words.pop() == "shop.wsgi"
    of_django = "django.core.wsgi:get_wsgi_application()"
    program, *more = shlex.split(asgi)
    return [
        [sys.executable, "-m", wsgi, "--no-control-socket", *words, of_django],
        _ours(program, more),
    ]


def _ours(program: str, words: list[str]) -> list[str]:
    """Return the command with this Python and the project of the tests."""
    assert words[-1] == "shop.asgi:application"
    return [sys.executable, "-m", program, *words[:-1], APPLICATION]


# Around the site, what Debian's own nginx.conf has around it.
NGINX = """\
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log warn;
events {{ worker_connections 1000; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  include {site};
}}
"""


def nginx(folder: Path, without: str = "", site: Path = SITE) -> Path:
    """Write an nginx configuration that includes the site, maybe without one of its lines."""
    made = folder / "nginx.conf"
    if without:
        text = site.read_text("utf-8")
        assert without in text
        site = folder / "site.conf"
        site.write_text(text.replace(without, ""))
    made.write_text(NGINX.format(folder=folder, site=site))
    return made
