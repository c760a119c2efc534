"""Log entries of operations, as the admin writes them, without values of fields."""

import json

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.test import modify_settings
from django.utils.translation import override

from django_mcp.bridges import model_operations
from django_mcp.bridges.model_operations import ADDED, change_message, log_action
from tests.declarations.helpers import make_request
from tests.shop.models import Invoice


def test_action_flags_equal_those_of_the_admin():
    assert (model_operations.ADDITION, model_operations.CHANGE, model_operations.DELETION) == (
        ADDITION, CHANGE, DELETION,
    )  # fmt: skip


def test_log_entry_is_readable_by_the_admin(alice, invoice):
    log_action(make_request(alice), invoice, CHANGE, change_message(Invoice, ["total", "tags"]))
    entry = LogEntry.objects.get()
    assert (entry.user, entry.get_edited_object()) == (alice, invoice)
    assert (entry.object_repr, entry.action_flag) == ("A-1", CHANGE)
    assert entry.content_type == ContentType.objects.get_for_model(Invoice)
    assert entry.get_change_message() == "Changed Amount due and Tags."


def test_log_entries_of_creation_and_deletion(alice, invoice):
    log_action(make_request(alice), invoice, ADDITION, ADDED)
    log_action(make_request(alice), invoice, DELETION)
    added, deleted = LogEntry.objects.order_by("pk")
    assert added.get_change_message() == "Added." and deleted.is_deletion()


def test_field_names_are_stored_untranslated(alice, invoice):
    with override("de"):
        message = change_message(Invoice, ["status"])
    assert json.dumps(message) == '[{"changed": {"fields": ["Status"]}}]'


@pytest.mark.parametrize("anonymous", [True, False], ids=["anonymous", "without the admin"])
def test_no_log_entry_for_anonymous_users_or_without_the_admin(alice, invoice, anonymous):
    with modify_settings(INSTALLED_APPS={"remove": [] if anonymous else ["django.contrib.admin"]}):
        log_action(make_request(None if anonymous else alice), invoice, DELETION)
    assert not LogEntry.objects.exists()


def test_no_log_entry_for_a_user_of_another_model(db, invoice):
    class Machine:
        pk, is_authenticated, is_active = 1, True, True

    log_action(make_request(Machine()), invoice, DELETION)
    assert not LogEntry.objects.exists()
