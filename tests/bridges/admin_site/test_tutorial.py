"""The admin of Django's tutorial, exposed in ten lines."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth.models import Permission, User

from tests.declarations.helpers import valid_catalog
from tests.polls.models import Choice, Question

pytestmark = [pytest.mark.urls("tests.polls.urls"), pytest.mark.django_db]

DECLARATIONS = """
import django_mcp as mcp
from django.contrib import admin
from tests.polls.models import Question

mcp.register_admin(
    admin.site, models=[Question], operations=["create", "update", "delete"], server=server
)
"""


@pytest.fixture
def tutorial(server):
    exec(compile(DECLARATIONS, "<tutorial>", "exec", dont_inherit=True), {"server": server})
    return server


@pytest.fixture
def editor(tutorial, connect):
    user = User.objects.create_user("editor", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="polls"))
    return connect(user, server=tutorial)


@pytest.fixture
def question(db):
    made = Question.objects.create(
        question_text="What's up?", pub_date=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    )
    for text in ("Not much", "The sky"):
        made.choice_set.create(choice_text=text)
    return made


def data(result):
    assert not result["isError"], result
    return result["structuredContent"]


def error(result):
    assert result["isError"], result
    return result["content"][0]["text"]


def entries():
    found = LogEntry.objects.order_by("pk")
    return [(one.action_flag, json.loads(one.change_message or "null")) for one in found]


def test_tutorial_is_exposed_in_at_most_ten_lines(tutorial):
    assert len([line for line in DECLARATIONS.splitlines() if line]) <= 10
    assert list(valid_catalog(tutorial).tools) == [
        "search_question", "read_question", "create_question", "update_question",
        "delete_question",
    ]  # fmt: skip


def test_search_shows_the_columns_of_the_list(editor, question):
    Question.objects.create(question_text="Else?", pub_date=datetime(2026, 2, 1, tzinfo=UTC))
    assert data(editor.call("search_question", query="up")) == {
        "results": [
            {
                "_key": question.pk,
                "question_text": "What's up?",
                "pub_date": "2026-01-02T03:04:05+00:00",
                "was_published_recently": False,
            }
        ],
        "count": 1, "page": 1, "pages": 1,
    }  # fmt: skip


def test_list_filter_ordering_and_pages(editor, question):
    for month in (2, 3):
        Question.objects.create(
            question_text=str(month), pub_date=datetime(2026, month, 1, tzinfo=UTC)
        )

    def found(**arguments):
        rows = data(editor.call("search_question", **arguments))["results"]
        return [row["question_text"] for row in rows]

    assert found(pub_date__gte="2026-01-31T00:00:00Z", ordering="-pub_date") == ["3", "2"]
    assert found(ordering="was_published_recently") == ["What's up?", "2", "3"]
    assert found(ordering="question_text", limit=1, page=2) == ["3"]
    assert "There is" in error(editor.call("search_question", limit=1, page=4))
    assert "pub_date__gte" in error(editor.call("search_question", pub_date__gte="tomorrow"))


def test_read_shows_fields_and_inlines(editor, question):
    assert data(editor.call("read_question", _key=question.pk)) == {
        "_key": question.pk,
        "_text": "What's up?",
        "question_text": "What's up?",
        "pub_date": "2026-01-02T03:04:05+00:00",
        "choice_set": [
            {"_key": one.pk, "choice_text": one.choice_text, "votes": 0}
            for one in question.choice_set.order_by("pk")
        ],
    }


def test_create_with_rows_of_the_inline(editor):
    made = data(
        editor.call(
            "create_question",
            question_text="Who?",
            pub_date="2026-01-01T10:00:00Z",
            choice_set=[{"choice_text": "I"}, {"choice_text": "You", "votes": 2}],
        )  # fmt: skip
    )
    question = Question.objects.get()
    assert made == {
        "_key": question.pk,
        "messages": ["The question “Who?” was added successfully."],
    }
    assert question.pub_date == datetime(2026, 1, 1, 10, tzinfo=UTC)
    assert [*question.choice_set.order_by("pk").values_list("choice_text", "votes")] == [
        ("I", 0), ("You", 2),
    ]  # fmt: skip
    added = [{"added": {"name": "choice", "object": name}} for name in ("I", "You")]
    assert entries() == [(ADDITION, [{"added": {}}, *added])]


def test_update_changes_only_what_is_given(editor, question):
    first, second = question.choice_set.order_by("pk")
    result = editor.call(
        "update_question", _key=question.pk, question_text="So?",
        choice_set=[
            {"_key": first.pk, "votes": 5}, {"_key": second.pk, "_delete": True},
            {"choice_text": "New"},
        ],
    )  # fmt: skip
    assert data(result)["messages"] == ["The question “So?” was changed successfully."]
    question.refresh_from_db()
    assert question.question_text == "So?"
    assert question.pub_date == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert {*Choice.objects.values_list("choice_text", "votes")} == {("Not much", 5), ("New", 0)}
    assert entries() == [
        (
            CHANGE,
            [
                {"changed": {"fields": ["Question text"]}},
                {"added": {"name": "choice", "object": "New"}},
                {"changed": {"name": "choice", "object": "Not much", "fields": ["Votes"]}},
                {"deleted": {"name": "choice", "object": "The sky"}},
            ],
        )
    ]


def test_validation_errors_name_the_argument(editor, question):
    first = question.choice_set.order_by("pk").first()
    wrong = error(
        editor.call(
            "update_question",
            _key=question.pk,
            question_text="",
            choice_set=[{"choice_text": "New", "votes": 1}, {"_key": first.pk, "choice_text": ""}],
        )  # fmt: skip
    )
    assert wrong == (
        "question_text: This field is required.\nchoice_set.1.choice_text: This field is required."
    )
    assert not entries() and Choice.objects.count() == 2


def test_delete_says_what_is_deleted(editor, question):
    result = data(editor.call("delete_question", _key=question.pk))
    assert result["deleted"] == {"questions": 1, "choices": 2}
    assert result["messages"] == ["The question “What's up?” was deleted successfully."]
    assert not Question.objects.exists()
    assert [flag for flag, _ in entries()] == [DELETION]
