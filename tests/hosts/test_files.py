"""The deployment files: systemd, nginx, Docker and Django accept them, and they agree."""

from __future__ import annotations

import http.client
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.restarts.processes import environment, migrate
from tools.database_servers import program
from tools.ports import free_port

from . import shown

SECONDS = 60
COMPOSE = yaml.safe_load((shown.SHOWN / "compose.yaml").read_text("utf-8"))
SERVICES = COMPOSE["services"]
SAMPLES = [path for path in (shown.ROOT / "docs").rglob("*.md") if "proxy_pass" in path.read_text()]


# Programs that read the files.


def test_systemd_accepts_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None and not os.environ.get("CI"):
        pytest.skip("There is no systemd-analyze.")
    unit = shown.UNIT.read_text("utf-8").replace("/srv/shop/venv/bin/uvicorn", sys.executable)
    copied = tmp_path / shown.UNIT.name
    copied.write_text(unit)
    command = [program("systemd-analyze", "systemd"), "verify", str(copied)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("site", [shown.SITE, shown.SITE_BESIDE_WSGI], ids=lambda path: path.name)
def test_nginx_accepts_the_site(tmp_path, site):
    command = [program("nginx", "nginx-light"), "-t", "-p", str(tmp_path)]
    configured = str(shown.nginx(tmp_path, site=site))
    done = subprocess.run([*command, "-c", configured], capture_output=True, text=True)
    assert done.returncode == 0 and "warn" not in done.stderr, done.stderr


@pytest.mark.parametrize("redis", ["redis://10.0.0.10:6379", ""])
def test_deployment_checks_pass(redis):
    given = {"DJANGO_SETTINGS_MODULE": "tests.hosts.settings", "REDIS_URL": redis}
    command = [sys.executable, "-m", "django", "check", "--deploy", "--tag", "django_mcp"]
    done = subprocess.run(
        [*command, "--fail-level", "INFO"], cwd=shown.ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(shown.ROOT), **shown.env(), **given},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_container_file_uses_known_instructions():
    lines = shown.CONTAINER.read_text("utf-8").replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    names = [name for name, _ in steps]
    assert names[0] == "FROM" and ":" in steps[0][1] and not steps[0][1].endswith(":latest")
    assert set(names) <= {
        *("FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "EXPOSE"),
        *("HEALTHCHECK", "STOPSIGNAL", "CMD"),
    }
    assert names.index("USER") < names.index("CMD") and dict(steps)["USER"] == "shop"
    assert names.count("CMD") == 1 and names[-1] == "CMD"


# Programs that the files start.


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[Callable[[list[str]], subprocess.Popen[bytes]]]:
    """Return a function that starts a worker with a database file."""
    migrate(tmp_path)
    begun = []

    def started(command: list[str]) -> subprocess.Popen[bytes]:
        running = subprocess.Popen(command, cwd=shown.ROOT, env=environment(tmp_path))
        begun.append(running)
        return running

    yield started
    for running in begun:
        running.kill()
        running.wait()


def asked(port: int, which: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", f"/health/{which}")
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def healthcheck(port: int) -> int:
    """Return the exit code of the container's health check."""
    found = re.search(r'^ +CMD \["python", "-c", "(.*)"\]$', shown.CONTAINER.read_text(), re.M)
    assert found is not None
    command = [sys.executable, "-c", found[1].replace("8000", str(port))]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode


@pytest.mark.slow
@pytest.mark.parametrize("by", ["systemd", "container"])
def test_worker_starts_becomes_healthy_and_stops_in_time(start_worker, by):
    port = free_port()
    command = shown.by_container(port) if by == "container" else shown.by_systemd("127.0.0.1", port)
    assert healthcheck(port) != 0
    running = start_worker(command)
    end = time.monotonic() + SECONDS
    while asked(port, "ready") != 200:
        assert running.poll() is None and time.monotonic() < end
        time.sleep(0.1)
    assert healthcheck(port) == 0
    running.terminate()
    limit = int(dict(shown.service())["TimeoutStopSec"])
    running.wait(limit)
    assert healthcheck(port) != 0


# References between the files.


def address(service: str) -> str:
    return str(SERVICES[service]["networks"]["shop"]["ipv4_address"])


def test_nginx_upstreams_are_the_workers():
    site = shown.SITE.read_text("utf-8")
    upstream = re.findall(r"^ +server ([\d.]+):8000 ", site, re.M)
    assert upstream == [address("web1"), address("web2")]
    assert shown.env()["BIND"] in upstream


def test_workers_trust_the_address_of_nginx():
    assert shown.env()["FORWARDED_ALLOW_IPS"] == address("nginx")
    assert "--proxy-headers" in dict(shown.service())["ExecStart"].split()
    assert '"--proxy-headers"' in shown.CONTAINER.read_text("utf-8")


@pytest.mark.parametrize(
    "page", [shown.SITE, shown.SITE_BESIDE_WSGI, *SAMPLES], ids=lambda path: path.name
)
def test_every_nginx_example_replaces_the_forwarded_address(page):
    """Otherwise the header would contain what the client claims."""
    passed = re.findall(r"proxy_pass .*?\n *\}", page.read_text("utf-8"), re.S)
    assert passed
    for block in passed:
        assert "proxy_set_header X-Forwarded-For $remote_addr;" in block


def test_workers_use_the_database_and_redis():
    assert shown.env()["PGHOST"] == address("db")
    assert SERVICES["web1"]["environment"]["REDIS_URL"] == f"redis://{address('redis')}:6379"


def test_environment_sets_all_variables_of_the_settings():
    settings = (shown.SHOWN / "deployed.py").read_text("utf-8")
    asked_for = set(re.findall(r'os\.environ(?:\.get\(|\[)"(\w+)"', settings))
    of_the_server = {"BIND", "FORWARDED_ALLOW_IPS"}
    assert asked_for == shown.env().keys() - of_the_server
    used = re.findall(r"\$\{(\w+)", (shown.SHOWN / "compose.yaml").read_text("utf-8"))
    assert set(used) <= shown.env().keys()


def test_shell_accepts_the_command_for_management():
    done = subprocess.run(["sh", "-n", str(shown.MANAGE)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_management_commands_run_as_the_workers_do():
    """As the same user, in the same folder, with the same environment, settings and Python."""
    unit, command = dict(shown.service()), shown.MANAGE.read_text("utf-8")
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    assert f"--uid={unit['User']}" in words
    assert f"--working-directory={unit['WorkingDirectory']}" in words
    assert f"--property=EnvironmentFile={unit['EnvironmentFile']}" in words
    (named,) = [word for word in unit["Environment"].split() if "SETTINGS" in word]
    assert f"--setenv={named}" in words and f"ENV {named} " in shown.CONTAINER.read_text("utf-8")
    assert str(Path(unit["ExecStart"].split()[0]).parent / "python") in words


def test_image_contains_no_secrets_and_no_database():
    ignored = (shown.SHOWN / ".dockerignore").read_text("utf-8").splitlines()
    assert {"*.env", "*.sqlite3*", "tls", ".git"} <= set(ignored)


def test_nginx_serves_the_folder_that_collectstatic_writes():
    root = (shown.SHOWN / "deployed.py").read_text("utf-8")
    (folder,) = re.findall(r'^STATIC_ROOT = "([^"]+)"', root, re.M)
    (parent,) = re.findall(r"location /static/ \{\n +root ([^;]+);", shown.SITE.read_text("utf-8"))
    assert folder == f"{parent}/static"
    mounted = [SERVICES[one]["volumes"] for one in ("migrate", "nginx")]
    assert f"static:{folder}" in mounted[0] and f"static:{folder}:ro" in mounted[1]
    assert "collectstatic" in str(SERVICES["migrate"]["command"])


def test_stop_timeouts_exceed_the_shutdown_grace():
    from django_mcp.transports.http.shutdown import ANSWER_SECONDS, CANCEL_SECONDS, GRACE_SECONDS

    needed = GRACE_SECONDS["SIGTERM"] + ANSWER_SECONDS + 2 * CANCEL_SECONDS
    assert int(dict(shown.service())["TimeoutStopSec"]) > needed
    for worker in ("web1", "web2"):
        assert int(SERVICES[worker]["stop_grace_period"].removesuffix("s")) > needed


def test_proxy_closes_idle_connections_before_the_worker():
    """Otherwise a request may reach a worker that has just closed the connection."""
    site = shown.SITE.read_text("utf-8")
    (kept,) = re.findall(r"keepalive_timeout (\d+)s;", site)
    line = dict(shown.service())["ExecStart"]
    words = shlex.split(line)
    assert int(words[words.index("--timeout-keep-alive") + 1]) > int(kept)
    (waits,) = re.findall(r"proxy_read_timeout (\d+)s;", site)
    from django_mcp.conf import DEFAULTS

    assert int(waits) > 2 * DEFAULTS["KEEPALIVE"]


def test_migrations_run_before_the_workers_start():
    for worker in ("web1", "web2"):
        waited = SERVICES[worker]["depends_on"]["migrate"]["condition"]
        assert waited == "service_completed_successfully"
    assert SERVICES["migrate"]["depends_on"]["db"]["condition"] == "service_healthy"
