"""Temporary database servers, in a temporary folder and on a free port.

Running servers are not touched. As root, missing programs are installed with Debian's package
manager. This module uses only the standard library.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tools.ports import free_port

DEBIAN_POSTGRES = "/usr/lib/postgresql/*/bin"
PATIENCE = 60  # seconds for a server to come up or go down


@contextmanager
def postgres() -> Iterator[dict[str, str]]:
    """A PostgreSQL server, and the variables that name it."""
    initdb, pg_ctl = (program(name, "postgresql") for name in ("initdb", "pg_ctl"))
    port = free_port()
    with folder_of("postgres") as (folder, account):
        data = folder / "data"
        options = f"-p {port} -h 127.0.0.1 -k {folder} -c fsync=off"
        do(account, initdb, "-A", "trust", "-U", "postgres", "-E", "UTF8", "-D", data)
        do(account, pg_ctl, "-D", data, "-l", folder / "log", "-w", "-o", options, "start")
        try:
            yield {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "postgres"}
        finally:
            do(account, pg_ctl, "-D", data, "-m", "fast", "-w", "stop")


@contextmanager
def mariadb() -> Iterator[dict[str, str]]:
    """A MariaDB server, and the variables that name it."""
    package = "mariadb-server"
    installer, server = program("mariadb-install-db", package), program("mariadbd", package)
    port = free_port()
    with folder_of("mysql") as (folder, account):
        data = f"--datadir={folder / 'data'}"
        do(account, installer, "--no-defaults", data, "--auth-root-authentication-method=normal")
        options = [
            data,
            f"--port={port}",
            f"--socket={folder / 'socket'}",
            "--bind-address=127.0.0.1",
        ]
        with open(folder / "log", "wb") as log:
            running = start(account, log, server, "--no-defaults", *options)
        try:
            wait_for(port, running)
            yield {"MARIADB_HOST": "127.0.0.1", "MARIADB_PORT": str(port), "MARIADB_USER": "root"}
        finally:
            running.terminate()
            running.wait(PATIENCE)


OWN = {"postgres": postgres, "mariadb": mariadb}


def program(name: str, package: str) -> str:
    """Where a program is; its package is installed if there is none and we may."""
    found = look_for(name)
    if not found and shutil.which("apt-get") and os.geteuid() == 0:
        apt_install(package)
        found = look_for(name)
    if not found:
        raise SystemExit(f"{name} is needed: install the package {package}.")
    return found


def look_for(name: str) -> str | None:
    debian = sorted(Path("/").glob(f"{DEBIAN_POSTGRES[1:]}/{name}"))
    return shutil.which(name) or next((str(path) for path in reversed(debian)), None)


def apt_install(package: str) -> None:
    print(f"Installing {package} ...", flush=True)
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", package]):
        subprocess.run(
            ["apt-get", "-qq", *command], env=quiet, check=True, stdout=subprocess.DEVNULL
        )


@contextmanager
def folder_of(account: str) -> Iterator[tuple[Path, str | None]]:
    """A temporary folder, and whose it is: no database server runs as root."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        if os.geteuid():
            yield Path(name), None
            return
        owner = account if known(account) else "nobody"
        shutil.chown(name, owner)
        yield Path(name), owner


def known(account: str) -> bool:
    try:
        return bool(pwd.getpwnam(account))
    except KeyError:
        return False


def do(account: str | None, *command: str | Path) -> None:
    """Run a command to its end as `account`, and show its output only if it fails."""
    with tempfile.TemporaryFile() as output:  # no pipe: a server that it starts would keep it open
        code = start(account, output, *command).wait()
        if code:
            output.seek(0)
            raise SystemExit(f"{command[0]} failed:\n{output.read().decode(errors='replace')}")


def start(account: str | None, output: IO[bytes], *command: str | Path) -> subprocess.Popen[bytes]:
    group = pwd.getpwnam(account).pw_gid if account else None
    return subprocess.Popen(
        command,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        user=account,
        group=group,
        extra_groups=() if account else None,
    )


def wait_for(port: int, running: subprocess.Popen[bytes]) -> None:
    """Poll until the server accepts connections."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and running.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"Nobody listens at port {port}: {running.args!r} did not come up.")
