"""Writing an entry into the configuration file of a client without losing other contents."""

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


def write_entry(path, entry=ENTRY, file=JSON, name="shop", secret=True):
    return write(file, path, name, entry, secret=secret)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def other_files(path):
    return sorted(one for one in path.parent.iterdir() if one != path)


def test_missing_file_is_created_with_its_folders(tmp_path):
    path = tmp_path / "a/b/mcp.json"
    done = write_entry(path)
    assert json.loads(path.read_text()) == {"mcpServers": {"shop": ENTRY}}
    assert (done.kind, done.backup, done.others) == ("added", None, 0)
    assert path.read_text().endswith("}\n") and not other_files(path)


@pytest.mark.parametrize("before", ["", "  \n", "{}", '\ufeff{"mcpServers": {}}'])
def test_empty_file_gets_the_entry(tmp_path, before):
    path = tmp_path / "mcp.json"
    path.write_text(before, encoding="utf-8")
    write_entry(path)
    assert json.loads(path.read_text("utf-8")) == {"mcpServers": {"shop": ENTRY}}


def test_other_contents_and_their_order_are_kept(tmp_path):
    path = tmp_path / "mcp.json"
    before = {
        "z": [1, 2.5, None, True, "é😀"],
        "mcpServers": {"y": {"command": "x"}, "a": {"url": "u", "disabled": True}},
        "b": {"mcpServers": {"shop": 1}},
    }
    path.write_text(json.dumps(before, indent="\t", ensure_ascii=False), encoding="utf-8")
    done = write_entry(path)
    after = json.loads(path.read_text("utf-8"))
    assert after["mcpServers"].pop("shop") == ENTRY
    assert json.dumps(after) == json.dumps(before)
    assert done.others == 2 and "\n\t" in path.read_text("utf-8")
    assert "é😀" in path.read_text("utf-8")


def test_backup_is_readable_only_by_the_owner(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_bytes(b'{"mcpServers":{}, "kept":"as  it was"}')
    done = write_entry(path)
    assert other_files(path) == [done.backup]
    assert done.backup.read_bytes() == b'{"mcpServers":{}, "kept":"as  it was"}'
    assert os.name != "posix" or mode(done.backup) == 0o600
    assert write_entry(path, ENTRY | {"url": "https://other.example/mcp"}).backup != done.backup


@posix
@pytest.mark.parametrize(
    ("before", "secret", "after"),
    [(None, True, 0o600), (None, False, 0o600), (0o644, True, 0o600), (0o664, False, 0o664)],
)
def test_file_with_a_token_is_readable_only_by_the_owner(tmp_path, before, secret, after):
    path = tmp_path / "mcp.json"
    if before:
        path.write_text("{}")
        path.chmod(before)
    write_entry(path, secret=secret)
    assert mode(path) == after


@posix
def test_unchanged_file_only_gets_its_mode_changed(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"shop":' + json.dumps(ENTRY) + "}}")
    path.chmod(0o644)
    before = path.read_bytes()
    done = write_entry(path)
    assert (done.kind, done.keys, path.read_bytes()) == ("same", (), before)
    assert mode(path) == 0o600 and not other_files(path)


def test_writing_twice_changes_nothing(tmp_path):
    path = tmp_path / "mcp.json"
    assert [write_entry(path).kind, write_entry(path).kind] == ["added", "same"]
    path = tmp_path / "config.toml"
    assert [write_entry(path, file=TOML).kind, write_entry(path, file=TOML).kind] == [
        "added",
        "same",
    ]


def test_replaced_entry_keeps_other_keys(tmp_path):
    path = tmp_path / "mcp.json"
    old = {"command": "npx", "args": ["x"], "env": {"AUTH_HEADER": "Bearer old"}, "disabled": True}
    path.write_text(json.dumps({"mcpServers": {"shop": old}}))
    done = write_entry(path)
    assert json.loads(path.read_text())["mcpServers"]["shop"] == {"disabled": True} | ENTRY
    assert done.kind == "replaced" and done.keys == ("args", "command", "env", "headers", "url")
    path.write_text(json.dumps({"mcpServers": {"shop": old | {"env": {"A": "1"} | old["env"]}}}))
    write_entry(path, {"command": "python", "args": []})
    found = json.loads(path.read_text())["mcpServers"]["shop"]
    assert found == {"disabled": True, "command": "python", "args": [], "env": {"A": "1"}}


@posix
def test_symbolic_link_is_kept(tmp_path):
    real, link = tmp_path / "dotfiles/mcp.json", tmp_path / "mcp.json"
    real.parent.mkdir()
    real.write_text("{}")
    link.symlink_to(real)
    write_entry(link)
    assert link.is_symlink() and json.loads(real.read_text())["mcpServers"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{\n  // mine\n  "a": 1\n}', "line 2.*comments would be lost"),
        ('{"a": 1,}', "not plain JSON"),
        ('{"a": 1, "a": 2}', "twice"),
        ("[1]", "no JSON object"),
        ('{"mcpServers": []}', "something else at 'mcpServers'"),
        ('{"a": NaN}', "not JSON"),
        ('{"a": 1e999}', "stays as it is"),
        ('{"a": "\\ud800", "é": 1}', "stays as it is"),
        (b"\xff\xfe", "not text in UTF-8"),
    ],
)
def test_json_that_would_lose_something_is_rejected(tmp_path, text, words):
    path = tmp_path / "mcp.json"
    raw = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(raw)
    with pytest.raises(Unwritable, match=words) as refused:
        write_entry(path)
    assert str(path) in str(refused.value) and TOKEN not in str(refused.value)
    assert path.read_bytes() == raw and not other_files(path)


def test_unreadable_path_is_an_error(tmp_path):
    with pytest.raises(Unwritable, match="directory"):
        write_entry(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(Unwritable, match="file"):
        write_entry(tmp_path / "file/mcp.json")


def test_concurrent_write_of_another_program_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    real = os.fsync

    def meanwhile(descriptor):
        path.write_text('{"theirs": 1}')
        real(descriptor)

    monkeypatch.setattr(client_files.os, "fsync", meanwhile)
    with pytest.raises(Unwritable, match="another program"):
        write_entry(path)
    assert path.read_text() == '{"theirs": 1}'
    assert all(one.suffix == ".bak" for one in other_files(path))


# TOML.


def test_toml_table_is_appended_and_other_text_is_kept(tmp_path):
    path = tmp_path / "config.toml"
    before = '# mine\nmodel = "x"   # too\n\n[mcp_servers.other]\ncommand = "y"\n'
    path.write_text(before)
    done = write_entry(path, TOML.http(URL, TOKEN), TOML)
    assert path.read_text().startswith(before) and done.others == 1
    assert tomllib.loads(path.read_text())["mcp_servers"]["shop"] == {
        "url": URL, "http_headers": {"Authorization": f"Bearer {TOKEN}"},
    }  # fmt: skip


def test_toml_table_is_replaced_with_its_subtables(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(
        "[a]\nb = 1\n[mcp_servers.shop]\ncommand = 'x'\nenabled = false\n"
        '[mcp_servers."shop".env]\nA = "1"\n[mcp_servers.shopping]\ncommand = "z"\n# end\n'
    )
    done = write_entry(path, TOML.stdio(["python", "-u"]), TOML)
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
        ("a = ", "not TOML"),
        ('[mcp_servers.shop]\nurl = "x" # mine\n', "comments"),
        ("[mcp_servers.shop]\nsince = 2020-01-01\n", "cannot be written again"),
        ('mcp_servers = {shop = {url = "x"}}\n', "stays as it is"),
        ('mcp_servers.shop.url = "x"\n', "stays as it is"),
        ("mcp_servers = 3", "something else"),
        ('a = """\n[mcp_servers.shop]\n"""\n[mcp_servers.shop]\nurl = "x"\n', "stays as it is"),
    ],
)
def test_toml_that_would_lose_something_is_rejected(tmp_path, text, words):
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(Unwritable, match=words):
        write_entry(path, TOML.http(URL, TOKEN), TOML)
    assert path.read_text() == text and not other_files(path)
