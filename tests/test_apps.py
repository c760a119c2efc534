"""The app configuration: autodiscovery, checks, and protection of stdout."""

import sys

import pytest
from django.apps import apps
from django.core.checks.registry import registry

import django_mcp
from django_mcp.apps import MCPConfig, SimpleMCPConfig


def test_default_app_config_autodiscovers():
    assert type(apps.get_app_config("django_mcp")) is MCPConfig
    assert issubclass(MCPConfig, SimpleMCPConfig) and "tests.shop.mcp" in sys.modules


def test_checks_are_registered_with_a_tag():
    ours = [check for check in registry.get_checks() if "django_mcp" in check.tags]
    names = [check.__name__ for check in ours if ".oauth." not in check.__module__]
    assert sorted(names) == [
        "check_declarations", "check_issuers", "check_session_database", "check_settings",
    ]  # fmt: skip
    deployed = registry.get_checks(include_deployment_checks=True)
    assert "check_deployment" in {check.__name__ for check in deployed}


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["manage.py", "mcp_stdio"], True),
        (["manage.py", "mcp_stdio", "--user", "alice"], True),
        (["manage.py", "mcp_stdio", "--help"], False),
        (["manage.py", "check"], False),
        (["manage.py"], False),
    ],
)
def test_stdout_is_redirected_while_mcp_stdio_loads(monkeypatch, arguments, kept):
    monkeypatch.setattr(sys, "argv", arguments)
    before = sys.stdout
    monkeypatch.setattr(sys, "stdout", before)
    SimpleMCPConfig("django_mcp", django_mcp)
    assert (sys.stdout is sys.stderr) is kept and (sys.stdout is before) is not kept
