"""``mcp.read_file``: it reads only files below its directory."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.http import Http404

import django_mcp as mcp
from django_mcp.declarations.content import read_file
from tests.client import RpcError

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create a directory with files, and files outside of it."""
    made = tmp_path / "handbook"
    (made / "chapters").mkdir(parents=True)
    (made / ".git").mkdir()
    (tmp_path / "handbook-2").mkdir()
    for path, data in {
        "handbook/index.md": "# Über uns".encode(),
        "handbook/chapters/one.json": b"{}",
        "handbook/chapters/a b%2e.txt": b"text",
        "handbook/logo.png": PNG,
        "handbook/latin.txt": "ä".encode("latin-1"),
        "handbook/unknown": b"words",
        "handbook/.env": b"hunter2",
        "handbook/.git/config": b"hunter2",
        "handbook-2/secret.txt": b"hunter2",
        "secret.txt": b"hunter2",
    }.items():
        (tmp_path / path).write_bytes(data)
    (made / "link.md").symlink_to(made / "index.md")
    (made / "out.txt").symlink_to(tmp_path / "secret.txt")
    (made / "outside").symlink_to(tmp_path / "handbook-2")
    (made / "hidden.txt").symlink_to(made / ".env")
    os.mkfifo(made / "pipe")
    return made


@pytest.mark.parametrize(
    ("path", "data", "mime_type"),
    [
        ("index.md", "# Über uns", "text/markdown"),
        ("link.md", "# Über uns", "text/markdown"),
        ("chapters/one.json", "{}", "application/json"),
        ("chapters/a b%2e.txt", "text", "text/plain"),
        ("logo.png", PNG, "image/png"),
        ("latin.txt", b"\xe4", "text/plain"),
        ("unknown", "words", "text/plain"),
    ],
)
def test_file_is_read_as_text_or_bytes_with_its_media_type(directory, path, data, mime_type):
    for given in (directory, str(directory), directory / "chapters" / ".."):
        assert read_file(given, path) == mcp.Contents(data, mime_type=mime_type)


@pytest.mark.parametrize(
    "path",
    [
        "", ".", "/", "..", "../secret.txt", "chapters/../../secret.txt", "/etc/passwd",
        "//etc/passwd", "chapters/../index.md", "./index.md", "index.md/", "chapters//one.json",
        "index.md/x", "..\\secret.txt", "chapters\\one.json", "../handbook-2/secret.txt",
        "chapters", "missing.md", "out.txt",
        "hidden.txt", "outside/secret.txt", "pipe", ".env", ".git/config",
        "index.md\0", "\0", "\ud800", "x" * 300, "x/" * 5000, "~", "~root/.profile",
        "%2e%2e/secret.txt",
    ],
)  # fmt: skip
def test_path_outside_of_the_directory_is_not_found(directory, path):
    with pytest.raises(Http404) as raised:
        read_file(directory, path)
    assert str(directory) not in str(raised.value)


def test_file_of_a_missing_directory_is_not_found(tmp_path):
    with pytest.raises(Http404):
        read_file(tmp_path / "missing", "index.md")


def test_file_that_is_too_large_is_refused_before_it_is_read(directory, settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"RESULT_SIZE": 3}
    assert read_file(directory, "chapters/one.json").data == "{}"
    with pytest.raises(mcp.ToolError, match="4 bytes"):
        read_file(directory, "chapters/a b%2e.txt")


@pytest.fixture
def client(server: Any, connect: Any, directory: Path) -> Any:
    """Return a client of a server with files at ``file://``."""

    @server.resource("file:///handbook/{+path}", permission=mcp.PUBLIC)
    def handbook(request: mcp.Request, path: str) -> mcp.Contents:
        """The handbook."""
        return mcp.read_file(directory, path)

    return connect(server=server)


def test_files_can_be_read_through_a_resource_template(client):
    (template,) = client.request("resources/templates/list")["resourceTemplates"]
    assert template["uriTemplate"] == "file:///handbook/{+path}"
    uri = "file:///handbook/chapters/one.json"
    (contents,) = client.request("resources/read", uri=uri)["contents"]
    assert contents == {"uri": uri, "mimeType": "application/json", "text": "{}"}
    (contents,) = client.request("resources/read", uri="file:///handbook/logo.png")["contents"]
    assert base64.b64decode(contents["blob"]) == PNG and contents["mimeType"] == "image/png"
    spaced = f"file:///handbook/{quote('chapters/a b%2e.txt')}"
    assert client.request("resources/read", uri=spaced)["contents"][0]["text"] == "text"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt", "..%2Fsecret.txt", "%2e%2e/secret.txt", "%2e%2e%2fsecret.txt",
        "chapters/..%2f..%2fsecret.txt", "/etc/passwd", "%2Fetc%2Fpasswd", ".env", "%2eenv",
        "out.txt", "outside/secret.txt", "..%5Csecret.txt", "index.md%00",
    ],
)  # fmt: skip
def test_uri_cannot_read_a_file_outside_of_the_directory(client, path, directory):
    for uri in (f"file:///handbook/{path}", f"file:///{path}"):
        with pytest.raises(RpcError) as raised:
            client.request("resources/read", uri=uri)
        found = raised.value
        assert found.code == -32602
        assert (
            "hunter2" not in f"{found} {found.data}"
            and str(directory) not in f"{found} {found.data}"
        )
