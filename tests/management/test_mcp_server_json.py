"""``mcp_server_json``: the entry of a server in the MCP registry, by the registry's own schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command

import django_mcp as mcp

# The official schema without descriptions and examples, with the licence of its repository.
SCHEMA = json.loads((Path(__file__).parent / "server_json/server.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


@pytest.fixture
def shop(server, settings):
    """A server with everything that an entry can show."""
    settings.DJANGO_MCP = {**django_settings.DJANGO_MCP, "URL": "https://shop.example"}
    server.public_name, server.version, server.title = "shop", "2.1.0", "The shop"
    server.description = "Find invoices, and refund them."
    server.website = "https://shop.example/about"
    server.icons = [
        mcp.Icon("https://shop.example/i.png", "image/png", ["48x48"], "light"),
        mcp.Icon("data:image/png;base64,AA=="),
    ]

    @server.tool
    def look(request: mcp.Request) -> str:
        return ""

    return server


def entry_of(capsys, *arguments):
    call_command("mcp_server_json", "--server", "shop", *arguments)
    out = capsys.readouterr().out
    found = json.loads(out)
    VALIDATOR.validate(found)
    return found


def rejected(*arguments):
    with pytest.raises(CommandError) as error:
        call_command("mcp_server_json", "--server", "shop", *arguments)
    first, *problems = str(error.value).split("\n- ")
    assert first == "The registry would reject this entry:"
    return problems


def test_entry_describes_the_server(shop, capsys):
    token = {"description": "An access token for this server", "isRequired": True, "isSecret": True}
    header = {
        "name": "Authorization", "value": "Bearer {token}", "isRequired": True, "isSecret": True,
        "variables": {"token": token},
    }  # fmt: skip
    shop.sse = True
    url = "https://shop.example/mcp/a%20test's%20own"
    assert entry_of(capsys, "--repository", "https://github.com/shop/shop") == {
        "$schema": SCHEMA["$id"],
        "name": "example.shop/shop",
        "title": "The shop",
        "description": "Find invoices, and refund them.",
        "version": "2.1.0",
        "websiteUrl": "https://shop.example/about",
        "icons": [
            {"src": "https://shop.example/i.png", "mimeType": "image/png", "sizes": ["48x48"],
             "theme": "light"}
        ],
        "repository": {"url": "https://github.com/shop/shop", "source": "github"},
        "remotes": [
            {"type": "streamable-http", "url": url, "headers": [header]},
            {"type": "sse", "url": f"{url}/sse", "headers": [header]},
        ],
    }  # fmt: skip


def test_public_server_needs_no_token(shop, capsys):
    shop._forget()
    shop._records.clear()
    shop.tool(name="look", permission=mcp.PUBLIC)(lambda request: "")
    (remote,) = entry_of(capsys)["remotes"]
    assert "headers" not in remote


def test_name_may_be_of_another_namespace(shop, capsys, settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"URL": "https://bücher.example:8443"}
    assert entry_of(capsys)["name"] == "example.xn--bcher-kva/shop"
    assert entry_of(capsys, "--name", "io.github.you/shop")["name"] == "io.github.you/shop"


def test_file_is_written(shop, capsys, tmp_path):
    file = tmp_path / "server.json"
    call_command("mcp_server_json", "--server", "shop", "--output", str(file))
    VALIDATOR.validate(json.loads(file.read_text("utf-8")))
    captured = capsys.readouterr()
    assert captured.out == "" and f"Written to {file}." in captured.err
    assert "Icons without an https URL" in captured.err
    with pytest.raises(CommandError, match="No such file"):
        call_command("mcp_server_json", "--server", "shop", "--output", str(tmp_path / "a/b.json"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://shop.example", "without https"),
        ("https://localhost:8000", "cannot reach"),
        ("https://app.localhost", "cannot reach"),
        ("https://127.0.0.1", "cannot reach"),
        ("https://[::1]:8000", "cannot reach"),
        ("https://10.0.0.7", "cannot reach"),
        ("https://93.184.215.14", "Pass --name"),
        ("https://intranet", "Pass --name"),
    ],
)
def test_url_must_be_public(shop, settings, url, words):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"URL": url}
    assert words in rejected()[0]


@pytest.mark.parametrize(
    ("attribute", "value", "words"),
    [
        ("description", None, "no description"),
        ("description", "x" * 101, "101 characters"),
        ("title", "x" * 101, "101 characters"),
        ("website", "http://shop.example", "no https URL"),
        ("version", "latest", "not one version"),
        ("version", "^1.2.3", "not one version"),
        ("version", ">=1.2", "not one version"),
        ("version", "1.x", "not one version"),
        ("version", "1.2.*", "not one version"),
        ("version", "1 - 2", "not one version"),
        ("version", "1.2 || 1.3", "not one version"),
        ("version", "", "not one version"),
    ],
)
def test_values_that_the_registry_rejects_are_reported(shop, attribute, value, words):
    setattr(shop, attribute, value)
    (problem,) = rejected()
    assert words in problem


@pytest.mark.parametrize("version", ["1.0", "v1.0", "2025-06-18", "1.0.0-beta.1", "3.0.0-rc.2"])
def test_single_versions_are_accepted(shop, capsys, version):
    shop.version = version
    assert entry_of(capsys)["version"] == version


def test_all_problems_are_reported_at_once(shop):
    shop.description = None
    arguments = ("--name", "shop", "--repository", "https://git.example/shop")
    name, description, repository = rejected(*arguments)
    assert "--name com.example/shop" in name and "--description" in description
    assert "GitHub or GitLab" in repository
    (only,) = rejected(*arguments[:2], "--description", "The shop.")
    assert "namespace" in only
