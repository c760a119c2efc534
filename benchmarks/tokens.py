"""
A user, a client and its access token in the authorization server, among many others.

With `BENCHMARK_REST` the user has the same token in REST framework's own table.

The first process that starts makes them. With `BENCHMARK_CLIENTS` there are as many more clients
that have registered and were not authorized yet.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_application_model

import django_mcp as mcp
from benchmarks.messages import SECRET
from django_mcp.oauth.models import ClientProfile, Source
from django_mcp.verifiers.protected_resource import resource

OTHERS = 1_000  # tokens of the same client, and their users


def fill() -> None:
    if User.objects.exists():
        return
    names = ["alice", *(f"person-{number}" for number in range(OTHERS))]
    people = User.objects.bulk_create(
        User(username=name, email=f"{name}@a.example") for name in names
    )
    mine, secrets = client(), [SECRET, *(f"other-{number}" for number in range(OTHERS))]
    tokens = get_access_token_model()
    tokens.objects.bulk_create(
        token(user, mine, secret) for user, secret in zip(people, secrets, strict=True)
    )
    if os.environ.get("BENCHMARK_REST"):
        from rest_framework.authtoken.models import Token

        Token.objects.create(key=SECRET, user=people[0])
    add_unauthorized(int(os.environ.get("BENCHMARK_CLIENTS", 0)))


def add_unauthorized(number: int) -> None:
    made = get_application_model().objects.bulk_create(map(application, range(number)))
    ClientProfile.objects.bulk_create(map(profile, made))


def client() -> Any:
    made = application("Agent")
    made.save()
    profile(made).save()
    return made


def application(name: object) -> Any:
    model = get_application_model()
    return model(
        name=str(name),
        client_type=model.CLIENT_PUBLIC,
        authorization_grant_type=model.GRANT_AUTHORIZATION_CODE,
        redirect_uris="http://127.0.0.1:7777/callback",
        registration_source=Source.DCR,
        hash_client_secret=False,
    )


def profile(client: Any) -> ClientProfile:
    return ClientProfile(client_id=client.client_id, source=Source.DCR, name=client.name)


def token(user: User, application: Any, secret: str) -> Any:
    return get_access_token_model()(
        user=user,
        application=application,
        token=secret,
        scope="mcp",
        resource=[resource(mcp.server)],
        expires=timezone.now() + timedelta(days=1),
    )
