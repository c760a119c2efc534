"""The page on signing in elsewhere.

All its code is a project that ``tests/oauth/test_third_party_sign_in.py`` runs, over real HTTP.
"""

from __future__ import annotations

import re

from django_mcp.oauth import token_endpoint, upstream_accounts
from django_mcp.oauth.upstream_accounts import Upstream
from tests.oauth.third.people import ThirdSite
from tests.oauth.third.provider import Provider

from .pages import ROOT, blocks, text

PAGE = ROOT / "docs/how-to/third-party-sign-in.md"


def test_system_checks_pass(tmp_path):
    assert len(blocks(PAGE, "python")) == 4  # each is a part of it
    with Provider("company") as company, Provider("other") as other:
        site = ThirdSite(tmp_path, company, other)
        assert "no issues" in site.manage("check", "--fail-level", "WARNING")


def test_numbers_of_the_page_are_those_of_the_code():
    told = re.sub(r"\s+", " ", text(PAGE))
    assert f"max_age = {Upstream.max_age:.0f} #" in told
    assert f"grace = {Upstream.grace:.0f} #" in told
    assert "five minutes here" in told and Upstream.max_age == 300
    assert (
        "asked again after ten seconds" in told
        and upstream_accounts.ERROR_RETRY_SECONDS == token_endpoint.RETRY_AFTER_SECONDS == 10
    )
