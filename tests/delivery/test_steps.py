"""Steps as rows: entered before they are done, remembered, bounded, never done twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_mcp.delivery import steps
from django_mcp.exceptions import ToolError
from django_mcp.models import DONE, PARKED, Call, Step

from .rows import given, session, together

pytestmark = pytest.mark.django_db


def test_a_step_is_done_once():
    assert steps.of("c1") == {}
    assert steps.begin("c1", "pay")
    assert steps.of("c1") == {}
    steps.keep("c1", "pay", {"receipt": "\0"})
    assert steps.of("c1") == {"pay": {"receipt": "\0"}} and not steps.begin("c1", "pay")


def test_nothing_is_a_value_too():
    steps.begin("c1", "pay")
    steps.keep("c1", "pay", None)
    assert steps.of("c1") == {"pay": None} and not steps.begin("c1", "pay")


def test_what_is_being_done_is_not_begun():
    steps.begin("c1", "pay")
    with pytest.raises(ToolError, match="being done already"):
        steps.begin("c1", "pay")


def test_what_failed_may_be_tried_again():
    steps.begin("c1", "pay")
    steps.fail("c1", "pay")
    assert steps.begin("c1", "pay")
    steps.keep("c1", "pay", 1)
    steps.fail("c1", "pay")
    assert steps.of("c1") == {"pay": 1}


@pytest.mark.parametrize("other", ["Pay", "pay ", "päy", "pay\0", ""])
def test_keys_that_look_alike_are_different(other):
    assert steps.begin("c1", "pay") and steps.begin("c1", other)
    steps.keep("c1", other, 2)
    steps.keep("c1", "pay", 1)
    assert steps.of("c1") == {"pay": 1, other: 2}


def test_calls_do_not_share_steps():
    assert steps.begin("c1", "pay") and steps.begin("c2", "pay")
    steps.keep("c2", "pay", 2)
    steps.forget("c2")
    assert steps.of("c2") == {} and steps.begin("c2", "pay")
    assert Step.objects.filter(call="c1").count() == 1


def test_a_call_remembers_so_many(monkeypatch):
    monkeypatch.setattr(steps, "MAX_KEYS", 2)
    assert steps.begin("c1", "a") and steps.begin("c1", "b")
    with pytest.raises(ToolError, match="at most 2"):
        steps.begin("c1", "c")
    assert Step.objects.count() == 2


def test_so_many_are_remembered_of_all(monkeypatch):
    monkeypatch.setattr(steps, "MAX_STEPS", 2)
    for call in "abc":
        steps.begin(call, "x")
    with pytest.raises(ToolError, match="Too many"):
        steps.begin("d", "x")
    Step.objects.filter(call="b").delete()
    Step.objects.filter(call="c").update(at=timezone.now() - timedelta(days=3))
    assert steps.begin("d", "x") and not Step.objects.filter(call="c").exists()


def test_what_cannot_come_back_is_forgotten():
    for call, hours in (("old", 5), ("young", 3)):
        steps.begin(call, "x")
        Step.objects.filter(call=call).update(at=timezone.now() - timedelta(hours=hours))
    with given(STATE_LIFETIME=7200, SESSION_LIFETIME=60):
        assert steps.expire() == 1
    assert Step.objects.get().call == "young"
    with given(STATE_LIFETIME=60, SESSION_LIFETIME=7200):
        assert steps.expire() == 1


def test_the_steps_of_a_call_that_waits_are_kept():
    """A question may wait for longer than anything else is remembered."""
    said = {"session": session(), "request_id": "1", "method": "tools/call"}
    waiting, over = (Call.objects.create(state=state, **said) for state in (PARKED, DONE))
    for name in (f"c{waiting.pk}", f"c{over.pk}", "c" + 30 * "1", "of a state"):
        steps.begin(name, "x")
    Step.objects.update(at=timezone.now() - timedelta(days=30))
    assert steps.expire() == 3 and Step.objects.get().call == f"c{waiting.pk}"


@pytest.mark.django_db(transaction=True)
def test_of_many_who_begin_one_does_it():
    def begin() -> bool:
        try:
            return steps.begin("c1", "pay")
        except ToolError:
            return False

    for number in range(4):
        Step.objects.all().delete()
        assert together(*[begin] * 5).count(True) == 1, number
