import socket

import pytest

from tools import databases


@pytest.mark.parametrize(("name", "port"), [("postgres", "PGPORT"), ("mariadb", "MARIADB_PORT")])
def test_a_port_where_nobody_listens(name, port, monkeypatch, capsys):
    monkeypatch.setenv(port.replace("PORT", "HOST"), "127.0.0.1")
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv(port, str(taken.getsockname()[1]))
        why = databases.why_absent(name)
        assert databases.main([name]) == 1
    assert databases.SERVERS[name].label in why
    assert port in why
    assert "\n" not in why
    assert why in capsys.readouterr().out
