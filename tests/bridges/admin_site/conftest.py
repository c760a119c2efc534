"""Fixtures of the tests of the admin's tools."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def project(settings):
    settings.ALLOWED_HOSTS = ["shop.example"]
