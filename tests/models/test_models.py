"""Models: exported names, relations, primary keys, permissions and string representations."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission
from django.db import models

from django_mcp import models as ours
from django_mcp.models import (
    Approval,
    Ask,
    BroadcastCursor,
    Call,
    Change,
    Event,
    Interest,
    Process,
    Session,
    Step,
    Stream,
    Subscription,
    Switch,
    Token,
    VisibilitySnapshot,
)
from tests.storage.rows import call, session

MODELS = list(apps.get_app_config("django_mcp").get_models())


def test_every_model_is_exported():
    states = {"DONE", "ENDLESS", "PARKED", "RUNNING", "ApprovalStatus"}
    assert {model.__name__ for model in MODELS} | states == set(ours.__all__)


WITH_USERS = (Approval, Token, Switch)  # models in the database of the users


def test_models_of_the_log_have_no_relations_to_other_models():
    for model in MODELS:
        targets = {field.related_model for field in model._meta.fields if field.is_relation}
        assert model in WITH_USERS or targets <= set(MODELS) - set(WITH_USERS)


def test_primary_keys_are_big_auto_fields():
    numbered = [
        model
        for model in MODELS
        if model not in (Process, Ask, VisibilitySnapshot, BroadcastCursor)
    ]
    assert {type(model._meta.pk) for model in numbered} == {models.BigAutoField}


@pytest.mark.django_db
def test_permissions_do_not_allow_changes_by_hand():
    found = Permission.objects.filter(content_type__app_label="django_mcp")
    assert set(found.values_list("codename", flat=True)) == {
        "view_session", "end_session", "view_stream", "view_event", "view_call",
        "view_token", "add_token", "revoke_token", "view_switch", "add_switch", "delete_switch",
        "use_inspector", "impersonate_in_inspector", "cancel_call", "view_auditentry",
        "export_auditentry", "view_approval",
    }  # fmt: skip


@pytest.mark.django_db
def test_string_representations_contain_no_secrets():
    made = session()
    stream = Stream(pk=7, session=made)
    event = Event(stream=stream, seq=3, data="secret")
    assert f"{made} {stream} {event}" == f"default #{made.pk} #7 7-3"
    assert str(call(params={"a": "secret"})) == "tools/call #None"
    assert str(Process(id="a" * 32)) == "a" * 32 and str(Ask(id="b" * 32)) == "b" * 32
    assert str(Step(call="c1", key="pay", value="secret")) == "c1 pay"
    assert str(Subscription(uri="a://b")) == "a://b" and str(Call(method="x", pk=1)) == "x #1"
    assert str(Change(pk=1, kind="row", subject="secret")) == "row #1"
    assert str(Interest(model="shop.tag")) == "shop.tag" and str(BroadcastCursor(name="x")) == "x"
    assert str(VisibilitySnapshot(name="x")) == "x"
    assert made.digest not in repr(made) and Session.objects.get() == made
