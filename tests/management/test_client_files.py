"""The configuration of a client: what else is in it stays, or nothing is written."""

from __future__ import annotations

import json
import os
import stat
import tomllib

import pytest

from django_mcp.management import client_files
from django_mcp.management.client_files import Unwritable, write
from django_mcp.web.clients import client

URL, TOKEN = "https://shop.example/mcp", "mcp_a-token"
ENTRY = {"url": URL, "headers": {"Authorization": f"Bearer {TOKEN}"}}
JSON, TOML = client("cursor").file, client("codex").file
posix = pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")


def put(path, entry=ENTRY, file=JSON, name="shop", secret=True):
    return write(file, path, name, entry, secret=secret)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def beside(path):
    return sorted(one for one in path.parent.iterdir() if one != path)


def test_a_file_that_is_not_there_is_made_with_its_folders(tmp_path):
    path = tmp_path / "a/b/mcp.json"
    done = put(path)
    assert json.loads(path.read_text()) == {"mcpServers": {"shop": ENTRY}}
    assert (done.kind, done.backup, done.others) == ("added", None, 0)
    assert path.read_text().endswith("}\n") and not beside(path)


@pytest.mark.parametrize("before", ["", "  \n", "{}", '\ufeff{"mcpServers": {}}'])
def test_an_empty_file_is_filled(tmp_path, before):
    path = tmp_path / "mcp.json"
    path.write_text(before, encoding="utf-8")
    put(path)
    assert json.loads(path.read_text("utf-8")) == {"mcpServers": {"shop": ENTRY}}


def test_everything_else_stays_in_its_order(tmp_path):
    path = tmp_path / "mcp.json"
    before = {
        "z": [1, 2.5, None, True, "é😀"],
        "mcpServers": {"y": {"command": "x"}, "a": {"url": "u", "disabled": True}},
        "b": {"mcpServers": {"shop": 1}},
    }
    path.write_text(json.dumps(before, indent="\t", ensure_ascii=False), encoding="utf-8")
    done = put(path)
    after = json.loads(path.read_text("utf-8"))
    assert after["mcpServers"].pop("shop") == ENTRY
    assert json.dumps(after) == json.dumps(before)
    assert done.others == 2 and "\n\t" in path.read_text("utf-8")
    assert "é😀" in path.read_text("utf-8")


def test_what_was_there_lies_beside_it_for_the_owner_alone(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_bytes(b'{"mcpServers":{}, "kept":"as  it was"}')
    done = put(path)
    assert beside(path) == [done.backup]
    assert done.backup.read_bytes() == b'{"mcpServers":{}, "kept":"as  it was"}'
    assert os.name != "posix" or mode(done.backup) == 0o600
    assert put(path, ENTRY | {"url": "https://other.example/mcp"}).backup != done.backup


@posix
@pytest.mark.parametrize(
    ("before", "secret", "after"),
    [(None, True, 0o600), (None, False, 0o600), (0o644, True, 0o600), (0o664, False, 0o664)],
)
def test_nobody_else_reads_what_a_token_is_in(tmp_path, before, secret, after):
    path = tmp_path / "mcp.json"
    if before:
        path.write_text("{}")
        path.chmod(before)
    put(path, secret=secret)
    assert mode(path) == after


@posix
def test_a_file_that_is_as_it_should_be_is_left_alone_but_for_who_may_read_it(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"shop":' + json.dumps(ENTRY) + "}}")
    path.chmod(0o644)
    before = path.read_bytes()
    done = put(path)
    assert (done.kind, done.keys, path.read_bytes()) == ("same", (), before)
    assert mode(path) == 0o600 and not beside(path)


def test_twice_is_once(tmp_path):
    path = tmp_path / "mcp.json"
    assert [put(path).kind, put(path).kind] == ["added", "same"]
    path = tmp_path / "config.toml"
    assert [put(path, file=TOML).kind, put(path, file=TOML).kind] == ["added", "same"]


def test_a_replaced_entry_keeps_what_people_added(tmp_path):
    path = tmp_path / "mcp.json"
    old = {"command": "npx", "args": ["x"], "env": {"AUTH_HEADER": "Bearer old"}, "disabled": True}
    path.write_text(json.dumps({"mcpServers": {"shop": old}}))
    done = put(path)
    assert json.loads(path.read_text())["mcpServers"]["shop"] == {"disabled": True} | ENTRY
    assert done.kind == "replaced" and done.keys == ("args", "command", "env", "headers", "url")
    path.write_text(json.dumps({"mcpServers": {"shop": old | {"env": {"A": "1"} | old["env"]}}}))
    put(path, {"command": "python", "args": []})
    found = json.loads(path.read_text())["mcpServers"]["shop"]
    assert found == {"disabled": True, "command": "python", "args": [], "env": {"A": "1"}}


@posix
def test_a_link_stays_one(tmp_path):
    real, link = tmp_path / "dotfiles/mcp.json", tmp_path / "mcp.json"
    real.parent.mkdir()
    real.write_text("{}")
    link.symlink_to(real)
    put(link)
    assert link.is_symlink() and json.loads(real.read_text())["mcpServers"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{\n  // mine\n  "a": 1\n}', "line 2.*comments would be lost"),
        ('{"a": 1,}', "not plain JSON"),
        ('{"a": 1, "a": 2}', "twice"),
        ("[1]", "no JSON object"),
        ('{"mcpServers": []}', "something else at 'mcpServers'"),
        ('{"a": NaN}', "no JSON"),
        ('{"a": 1e999}', "stays as it is"),
        ('{"a": "\\ud800", "é": 1}', "stays as it is"),
        (b"\xff\xfe", "no text in UTF-8"),
    ],
)
def test_what_would_be_lost_is_refused(tmp_path, text, words):
    path = tmp_path / "mcp.json"
    raw = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(raw)
    with pytest.raises(Unwritable, match=words) as refused:
        put(path)
    assert str(path) in str(refused.value) and TOKEN not in str(refused.value)
    assert path.read_bytes() == raw and not beside(path)


def test_a_folder_or_what_may_not_be_read_is_told(tmp_path):
    with pytest.raises(Unwritable, match="directory"):
        put(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(Unwritable, match="file"):
        put(tmp_path / "file/mcp.json")


def test_another_program_that_writes_meanwhile_wins(tmp_path, monkeypatch):
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    real = os.fsync

    def meanwhile(descriptor):
        path.write_text('{"theirs": 1}')
        real(descriptor)

    monkeypatch.setattr(client_files.os, "fsync", meanwhile)
    with pytest.raises(Unwritable, match="another program"):
        put(path)
    assert path.read_text() == '{"theirs": 1}'
    assert all(one.suffix == ".bak" for one in beside(path))


# TOML.


def test_a_table_is_added_and_the_text_before_it_stays(tmp_path):
    path = tmp_path / "config.toml"
    before = '# mine\nmodel = "x"   # too\n\n[mcp_servers.other]\ncommand = "y"\n'
    path.write_text(before)
    done = put(path, TOML.http(URL, TOKEN), TOML)
    assert path.read_text().startswith(before) and done.others == 1
    assert tomllib.loads(path.read_text())["mcp_servers"]["shop"] == {
        "url": URL, "http_headers": {"Authorization": f"Bearer {TOKEN}"},
    }  # fmt: skip


def test_a_table_is_replaced_with_those_below_it(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(
        "[a]\nb = 1\n[mcp_servers.shop]\ncommand = 'x'\nenabled = false\n"
        '[mcp_servers."shop".env]\nA = "1"\n[mcp_servers.shopping]\ncommand = "z"\n# end\n'
    )
    done = put(path, TOML.stdio(["python", "-u"]), TOML)
    assert tomllib.loads(path.read_text()) == {
        "a": {"b": 1},
        "mcp_servers": {
            "shopping": {"command": "z"},
            "shop": {"enabled": False, "command": "python", "args": ["-u"], "env": {"A": "1"}},
        },
    }
    assert done.kind == "replaced" and "# end" in path.read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = ", "no TOML"),
        ('[mcp_servers.shop]\nurl = "x" # mine\n', "comments"),
        ("[mcp_servers.shop]\nsince = 2020-01-01\n", "cannot be written again"),
        ('mcp_servers = {shop = {url = "x"}}\n', "stays as it is"),
        ('mcp_servers.shop.url = "x"\n', "stays as it is"),
        ("mcp_servers = 3", "something else"),
        ('a = """\n[mcp_servers.shop]\n"""\n[mcp_servers.shop]\nurl = "x"\n', "stays as it is"),
    ],
)
def test_toml_that_would_lose_something_is_refused(tmp_path, text, words):
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(Unwritable, match=words):
        put(path, TOML.http(URL, TOKEN), TOML)
    assert path.read_text() == text and not beside(path)
