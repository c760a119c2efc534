"""Fixtures of the admin: signed-in staff, a superuser, and a recorded session."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_mcp.models import Call
from django_mcp.storage import sessions, streams
from django_mcp.storage.databases import rows

SECRET = "what was said in confidence"


@pytest.fixture
def staff(db: None) -> Callable[..., Client]:
    """Return a function that signs in a staff user who has these permissions."""

    def staff(*codenames: str, name: str = "sam", **fields: Any) -> Client:
        user = User.objects.create_user(name, password="x", is_staff=True, **fields)
        wanted = Permission.objects.filter(
            content_type__app_label__in=("django_mcp", "auth"), codename__in=codenames
        )
        assert wanted.count() == len(codenames)
        user.user_permissions.set(wanted)
        client = Client()
        client.force_login(user)
        return client

    return staff


@pytest.fixture
def root(db: None) -> Client:
    """A superuser, signed in."""
    client = Client()
    client.force_login(User.objects.create_superuser("root", password="x"))
    return client


@pytest.fixture
def recorded_session(db: None) -> SimpleNamespace:
    """A session with a call, a stream and an event whose contents are secret."""
    id, session = sessions.create(
        server="default", owner="7::", user="7", revision="2025-11-25",
        client_info={"name": "Inspector <b>", "version": "1"}, capabilities={"roots": {}},
    )  # fmt: skip
    call = Call(
        session=session, request_id='"r-1"', request_digest="d" * 64, method="tools/call",
        params={"text": SECRET}, meta={"note": SECRET}, known={"a": SECRET}, user="7",
        scopes=["read"],
    )  # fmt: skip
    stream = streams.open(session, calls=[call], messages=[f'{{"text": "{SECRET}"}}'])
    event = stream.event_set.get() if hasattr(stream, "event_set") else None
    found = rows(Call).get()
    return SimpleNamespace(id=id, session=session, stream=stream, event=event, call=found)
