"""A visit that finds what it should is a part of the demonstration's test; here is the rest."""

import sys

import pytest

from tools import serving
from tools.demo import Access
from tools.telling import Plain
from tools.visit import visit


@pytest.fixture
def visited(capsys):
    """What a visit tells where nobody listens, or somebody who is no atlas."""

    def told(**passwords):
        url = f"{serving.origin(serving.free_port())}/mcp"
        code = visit(url, Access("mcp_no-token", passwords), Plain(sys.stdout))
        return code, capsys.readouterr()

    return told


def test_where_nobody_listens_each_way_fails_in_words(visited):
    code, told = visited(alice="no password")
    assert code == 1
    assert told.out.count("\n== ") == told.out.count("✗") == 3
    assert "Traceback" not in told.out + told.err


def test_a_password_that_is_not_known_is_told_how_to_make_another(visited):
    code, told = visited()
    assert code == 1
    assert "alice's password is not known" in told.out
    assert "demo_users --passwords" in told.out
