"""The DJANGO_MCP setting: a dict over defaults that is reloaded when it changes."""

import pytest
from django.core.signals import setting_changed
from django.test import override_settings

from django_mcp.conf import DEFAULTS, Project, Settings, settings


def test_setting_has_at_most_twenty_five_keys():
    assert len(DEFAULTS) <= 25 and all(key.isupper() for key in DEFAULTS)


@pytest.mark.parametrize("key", DEFAULTS)
def test_missing_keys_have_their_default(key):
    with override_settings(DJANGO_MCP={}):
        assert getattr(settings, key) == DEFAULTS[key]


@pytest.mark.parametrize("given", [None, {}])
def test_setting_may_be_empty_or_none(given):
    with override_settings(DJANGO_MCP=given):
        assert settings.PAGE_SIZE == 100 and settings.unknown() == [] and settings.given() == {}


def test_setting_may_be_missing():
    with override_settings():
        from django.conf import settings as django_settings

        del django_settings.DJANGO_MCP
        assert Settings().PAGE_SIZE == 100


def test_given_keys_override_defaults():
    with override_settings(DJANGO_MCP={"PAGE_SIZE": 5}):
        assert settings.PAGE_SIZE == 5 and settings.URL == "http://localhost"
        assert settings.given() == {"PAGE_SIZE": 5}


def test_setting_is_reloaded_when_it_changes():
    before = settings.PAGE_SIZE
    with override_settings(DJANGO_MCP={"PAGE_SIZE": 5}):
        assert settings.PAGE_SIZE == 5
        with override_settings(DJANGO_MCP={"PAGE_SIZE": 6}):
            assert settings.PAGE_SIZE == 6
        assert settings.PAGE_SIZE == 5
    assert before == settings.PAGE_SIZE


def test_other_settings_cause_no_reload():
    made = Settings()
    assert made.PAGE_SIZE == 100
    made.reload(setting="DEBUG", value=True, enter=True)
    assert "PAGE_SIZE" in vars(made)
    made.reload(setting="DJANGO_MCP", value={}, enter=True)
    assert not vars(made) and made.PAGE_SIZE == 100


def test_defaults_are_never_modified():
    with override_settings(DJANGO_MCP={"THROTTLES": {"calls": "1/s"}}):
        assert settings.THROTTLES == {"calls": "1/s"} and DEFAULTS["THROTTLES"] == {}


def test_unknown_keys_are_reported():
    with pytest.raises(AttributeError, match="'NONSENSE'"):
        _ = settings.NONSENSE
    with override_settings(DJANGO_MCP={"B": 1, "A": 2, "URL": "http://x"}):
        assert settings.unknown() == ["A", "B"]
        assert not hasattr(settings, "A")


def test_django_setting_is_cached_until_it_changes():
    made = Project()
    setting_changed.connect(made.reload)
    with override_settings(FORCE_SCRIPT_NAME="/a"):
        assert made.FORCE_SCRIPT_NAME == "/a" == vars(made)["FORCE_SCRIPT_NAME"]
        with override_settings(FORCE_SCRIPT_NAME="/b"):
            assert made.FORCE_SCRIPT_NAME == "/b"
    assert made.FORCE_SCRIPT_NAME is None
