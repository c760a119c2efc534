"""Steps of calls: claimed before they run, stored with their value, limited and never run twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_mcp.exceptions import ToolError
from django_mcp.models import DONE, PARKED, Call, Step
from django_mcp.storage import calls

from .rows import given, session, together

pytestmark = pytest.mark.django_db


def test_step_is_claimed_once_and_its_value_stored():
    assert calls.step_values("c1") == {}
    assert calls.begin_step("c1", "pay")
    assert calls.step_values("c1") == {}
    calls.store_step_value("c1", "pay", {"receipt": "\0"})
    assert calls.step_values("c1") == {"pay": {"receipt": "\0"}} and not calls.begin_step(
        "c1", "pay"
    )


def test_none_is_a_stored_value():
    calls.begin_step("c1", "pay")
    calls.store_step_value("c1", "pay", None)
    assert calls.step_values("c1") == {"pay": None} and not calls.begin_step("c1", "pay")


def test_running_step_cannot_be_begun_again():
    calls.begin_step("c1", "pay")
    with pytest.raises(ToolError, match="is already running"):
        calls.begin_step("c1", "pay")


def test_failed_step_can_be_begun_again():
    calls.begin_step("c1", "pay")
    calls.discard_step("c1", "pay")
    assert calls.begin_step("c1", "pay")
    calls.store_step_value("c1", "pay", 1)
    calls.discard_step("c1", "pay")
    assert calls.step_values("c1") == {"pay": 1}


@pytest.mark.parametrize("other", ["Pay", "pay ", "päy", "pay\0", ""])
def test_similar_keys_are_distinct(other):
    assert calls.begin_step("c1", "pay") and calls.begin_step("c1", other)
    calls.store_step_value("c1", other, 2)
    calls.store_step_value("c1", "pay", 1)
    assert calls.step_values("c1") == {"pay": 1, other: 2}


def test_calls_do_not_share_steps():
    assert calls.begin_step("c1", "pay") and calls.begin_step("c2", "pay")
    calls.store_step_value("c2", "pay", 2)
    calls.delete_steps("c2")
    assert calls.step_values("c2") == {} and calls.begin_step("c2", "pay")
    assert Step.objects.filter(call="c1").count() == 1


def test_number_of_steps_of_a_call_is_limited(monkeypatch):
    monkeypatch.setattr(calls, "MAX_STEPS_PER_CALL", 2)
    assert calls.begin_step("c1", "a") and calls.begin_step("c1", "b")
    with pytest.raises(ToolError, match="at most 2"):
        calls.begin_step("c1", "c")
    assert Step.objects.count() == 2


def test_total_number_of_steps_is_limited(monkeypatch):
    monkeypatch.setattr(calls, "MAX_STEPS", 2)
    for call in "abc":
        calls.begin_step(call, "x")
    with pytest.raises(ToolError, match="too many steps"):
        calls.begin_step("d", "x")
    Step.objects.filter(call="b").delete()
    Step.objects.filter(call="c").update(at=timezone.now() - timedelta(days=3))
    assert calls.begin_step("d", "x") and not Step.objects.filter(call="c").exists()


def test_steps_expire_after_the_longest_lifetime():
    for call, hours in (("old", 5), ("young", 3)):
        calls.begin_step(call, "x")
        Step.objects.filter(call=call).update(at=timezone.now() - timedelta(hours=hours))
    with given(STATE_LIFETIME=7200, SESSION_LIFETIME=60):
        assert calls.delete_expired_steps() == 1
    assert Step.objects.get().call == "young"
    with given(STATE_LIFETIME=60, SESSION_LIFETIME=7200):
        assert calls.delete_expired_steps() == 1


def test_steps_of_a_parked_call_are_kept():
    """A question may stay open for longer than any other lifetime."""
    said = {"session": session(), "request_id": "1", "method": "tools/call"}
    waiting, over = (Call.objects.create(state=state, **said) for state in (PARKED, DONE))
    for name in (f"c{waiting.pk}", f"c{over.pk}", "c" + 30 * "1", "of a state"):
        calls.begin_step(name, "x")
    Step.objects.update(at=timezone.now() - timedelta(days=30))
    assert calls.delete_expired_steps() == 3 and Step.objects.get().call == f"c{waiting.pk}"


@pytest.mark.django_db(transaction=True)
def test_step_is_begun_by_one_of_several_threads():
    def begin() -> bool:
        try:
            return calls.begin_step("c1", "pay")
        except ToolError:
            return False

    for number in range(4):
        Step.objects.all().delete()
        assert together(*[begin] * 5).count(True) == 1, number
