"""Steps as rows: entered before they are done, remembered, bounded, never done twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_mcp.exceptions import ToolError
from django_mcp.models import DONE, PARKED, Call, Step
from django_mcp.storage import calls

from .rows import given, session, together

pytestmark = pytest.mark.django_db


def test_a_step_is_done_once():
    assert calls.of("c1") == {}
    assert calls.begin("c1", "pay")
    assert calls.of("c1") == {}
    calls.keep("c1", "pay", {"receipt": "\0"})
    assert calls.of("c1") == {"pay": {"receipt": "\0"}} and not calls.begin("c1", "pay")


def test_nothing_is_a_value_too():
    calls.begin("c1", "pay")
    calls.keep("c1", "pay", None)
    assert calls.of("c1") == {"pay": None} and not calls.begin("c1", "pay")


def test_what_is_being_done_is_not_begun():
    calls.begin("c1", "pay")
    with pytest.raises(ToolError, match="being done already"):
        calls.begin("c1", "pay")


def test_what_failed_may_be_tried_again():
    calls.begin("c1", "pay")
    calls.fail("c1", "pay")
    assert calls.begin("c1", "pay")
    calls.keep("c1", "pay", 1)
    calls.fail("c1", "pay")
    assert calls.of("c1") == {"pay": 1}


@pytest.mark.parametrize("other", ["Pay", "pay ", "päy", "pay\0", ""])
def test_keys_that_look_alike_are_different(other):
    assert calls.begin("c1", "pay") and calls.begin("c1", other)
    calls.keep("c1", other, 2)
    calls.keep("c1", "pay", 1)
    assert calls.of("c1") == {"pay": 1, other: 2}


def test_calls_do_not_share_steps():
    assert calls.begin("c1", "pay") and calls.begin("c2", "pay")
    calls.keep("c2", "pay", 2)
    calls.forget("c2")
    assert calls.of("c2") == {} and calls.begin("c2", "pay")
    assert Step.objects.filter(call="c1").count() == 1


def test_a_call_remembers_so_many(monkeypatch):
    monkeypatch.setattr(calls, "MAX_KEYS", 2)
    assert calls.begin("c1", "a") and calls.begin("c1", "b")
    with pytest.raises(ToolError, match="at most 2"):
        calls.begin("c1", "c")
    assert Step.objects.count() == 2


def test_so_many_are_remembered_of_all(monkeypatch):
    monkeypatch.setattr(calls, "MAX_STEPS", 2)
    for call in "abc":
        calls.begin(call, "x")
    with pytest.raises(ToolError, match="Too many"):
        calls.begin("d", "x")
    Step.objects.filter(call="b").delete()
    Step.objects.filter(call="c").update(at=timezone.now() - timedelta(days=3))
    assert calls.begin("d", "x") and not Step.objects.filter(call="c").exists()


def test_what_cannot_come_back_is_forgotten():
    for call, hours in (("old", 5), ("young", 3)):
        calls.begin(call, "x")
        Step.objects.filter(call=call).update(at=timezone.now() - timedelta(hours=hours))
    with given(STATE_LIFETIME=7200, SESSION_LIFETIME=60):
        assert calls.expire() == 1
    assert Step.objects.get().call == "young"
    with given(STATE_LIFETIME=60, SESSION_LIFETIME=7200):
        assert calls.expire() == 1


def test_the_steps_of_a_call_that_waits_are_kept():
    """A question may wait for longer than anything else is remembered."""
    said = {"session": session(), "request_id": "1", "method": "tools/call"}
    waiting, over = (Call.objects.create(state=state, **said) for state in (PARKED, DONE))
    for name in (f"c{waiting.pk}", f"c{over.pk}", "c" + 30 * "1", "of a state"):
        calls.begin(name, "x")
    Step.objects.update(at=timezone.now() - timedelta(days=30))
    assert calls.expire() == 3 and Step.objects.get().call == f"c{waiting.pk}"


@pytest.mark.django_db(transaction=True)
def test_of_many_who_begin_one_does_it():
    def begin() -> bool:
        try:
            return calls.begin("c1", "pay")
        except ToolError:
            return False

    for number in range(4):
        Step.objects.all().delete()
        assert together(*[begin] * 5).count(True) == 1, number
