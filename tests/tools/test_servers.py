import os
import shutil

import pytest

from tools import databases, servers

if not hasattr(os, "geteuid"):
    pytest.skip("servers of our own are for POSIX systems", allow_module_level=True)

PROGRAM = {"postgres": "initdb", "mariadb": "mariadb-install-db"}


@pytest.mark.slow
@pytest.mark.parametrize("name", servers.OWN)
def test_a_server_of_our_own_answers_and_goes(name, monkeypatch):
    if not servers.look_for(PROGRAM[name]):
        pytest.skip(f"{PROGRAM[name]} is not installed")
    for variable in ("PGPASSWORD", "MARIADB_PASSWORD"):
        monkeypatch.delenv(variable, raising=False)
    with servers.OWN[name]() as environ:
        for variable, value in environ.items():
            monkeypatch.setenv(variable, value)
        assert databases.why_absent(name) is None
    assert databases.why_absent(name)


def test_a_failed_program_is_told():
    with pytest.raises(SystemExit, match="No such thing"):
        servers.do(None, "sh", "-c", "echo No such thing; exit 3")


def test_a_server_that_dies_is_not_waited_for():
    with open(os.devnull, "wb") as nothing:
        dead = servers.start(None, nothing, shutil.which("true"))
    with pytest.raises(SystemExit, match="did not come up"):
        servers.wait_for(servers.free_port(), dead)


def test_a_missing_program_names_its_package(monkeypatch):
    monkeypatch.setattr(servers, "look_for", lambda name: None)
    monkeypatch.setattr(servers.os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match="install the package postgresql"):
        servers.program("initdb", "postgresql")
