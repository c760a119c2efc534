"""Entries as the admin writes them: who did what to which row, and nothing of what is in it."""

import json

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.test import modify_settings
from django.utils.translation import override

from django_mcp.bridges import rows
from django_mcp.bridges.rows import ADDED, change_message, log_action
from tests.declarations.world import asked
from tests.shop.models import Invoice


def test_the_flags_are_the_admins():
    assert (rows.ADDITION, rows.CHANGE, rows.DELETION) == (
        ADDITION, CHANGE, DELETION,
    )  # fmt: skip


def test_an_entry_is_the_admins(alice, invoice):
    log_action(asked(alice), invoice, CHANGE, change_message(Invoice, ["total", "tags"]))
    entry = LogEntry.objects.get()
    assert (entry.user, entry.get_edited_object()) == (alice, invoice)
    assert (entry.object_repr, entry.action_flag) == ("A-1", CHANGE)
    assert entry.content_type == ContentType.objects.get_for_model(Invoice)
    assert entry.get_change_message() == "Changed Amount due and Tags."


def test_what_was_added_and_deleted(alice, invoice):
    log_action(asked(alice), invoice, ADDITION, ADDED)
    log_action(asked(alice), invoice, DELETION)
    added, deleted = LogEntry.objects.order_by("pk")
    assert added.get_change_message() == "Added." and deleted.is_deletion()


def test_names_are_kept_untranslated(alice, invoice):
    with override("de"):
        message = change_message(Invoice, ["status"])
    assert json.dumps(message) == '[{"changed": {"fields": ["Status"]}}]'


@pytest.mark.parametrize("nobody", [True, False], ids=["nobody", "without the admin"])
def test_there_is_none(alice, invoice, nobody):
    with modify_settings(INSTALLED_APPS={"remove": [] if nobody else ["django.contrib.admin"]}):
        log_action(asked(None if nobody else alice), invoice, DELETION)
    assert not LogEntry.objects.exists()


def test_a_user_of_another_kind_has_none(db, invoice):
    class Machine:
        pk, is_authenticated, is_active = 1, True, True

    log_action(asked(Machine()), invoice, DELETION)
    assert not LogEntry.objects.exists()
