"""Rows that move between tenants notify only users who saw them before or see them after."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase as HypothesisTestCase

from django_mcp.auth.principal import Principal
from django_mcp.calls.visibility import keys_of, row_ref
from django_mcp.changes import broadcaster
from django_mcp.changes.broadcaster import SessionNotifications
from django_mcp.changes.change_set import ChangeSet, change_set_for
from django_mcp.changes.subscriptions import ClientSubscriptions, send_together
from django_mcp.declarations import server as declared
from django_mcp.declarations.server import Server
from django_mcp.protocol.connection import Connection, Phase, State
from django_mcp.storage import sessions, streams
from django_mcp.storage.change_log import NumberedChange
from django_mcp.storage.jobs import run_with_retries
from django_mcp.testing.environment import TestEnvironment
from tests.shop.models import Customer

from ..storage.loops import a_loop
from .shop_server import create_companies, register_models

pytestmark = pytest.mark.slow

TENANTS, ROWS = 3, 4
tenant = st.integers(0, TENANTS - 1)
row = st.integers(0, ROWS - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("move"), row, tenant),
        st.tuples(st.just("save"), row),
        st.tuples(st.just("delete"), row),
        st.tuples(st.just("join"), tenant, tenant),  # a user, a company
        st.tuples(st.just("leave"), tenant, tenant),
        st.tuples(st.just("tell")),
    ),
    max_size=25,
)


class ExpectedNotifications:
    """What each user could see at the last check, computed without the code under test."""

    def __init__(self, tenants: Tenants) -> None:
        self.tenants = tenants
        self.seen = tenants.visible()

    def after(self, changed: set[int]) -> set[tuple[int, int]]:
        """Return (user, row) for each user who saw a changed row before or sees it now."""
        now = self.tenants.visible()
        subscribed = self.tenants.subscribed
        expected = {
            (user, key) for user, key in subscribed if key in changed
            and ((user, key) in self.seen or (user, key) in now)
        }  # fmt: skip
        for user, key in subscribed:
            if key in changed:
                (self.seen.add if (user, key) in now else self.seen.discard)((user, key))
        return expected


class Tenants:
    """Companies with one member each, who subscribe to the rows that they see."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.companies, self.users = create_companies(TENANTS)
        self.rows = [
            Customer.objects.create(company=self.companies[n % TENANTS]) for n in range(ROWS)
        ]
        self.keys = [one.pk for one in self.rows]
        self.changed: list[dict[str, Any]] = []
        self.subscribed = self.visible()

    def visible(self) -> set[tuple[int, int]]:
        found = set()
        for number, user in enumerate(self.users):
            mine = Customer.objects.filter(company__members=user).values_list("pk", flat=True)
            found |= {(number, key) for key in mine}
        return found

    def uri(self, key: int) -> str:
        return f"model://shop/customer/{key}"

    def apply(self, step: tuple[Any, ...]) -> None:
        kind, *of = step
        if kind in ("join", "leave"):
            members = self.companies[of[1]].members
            (members.add if kind == "join" else members.remove)(self.users[of[0]])
            return
        one = self.rows[of[0]]
        if one is None:
            return
        self.changed.append(keys_of(one))
        if kind == "delete":
            one.delete()
            self.rows[of[0]] = None
            return
        if kind == "move":
            one.company = self.companies[of[1]]
        one.save()

    def page(self) -> tuple[ChangeSet, set[int]]:
        changed, self.changed = self.changed, []
        found = [NumberedChange(1, "row", keys) for keys in changed]
        keys = {int(keys["shop.customer"]["pk"]) for keys in changed}
        return change_set_for(self.server, found), keys


class TestMovedRows(HypothesisTestCase):
    databases = "__all__"  # type: ignore[assignment]

    def setUp(self) -> None:
        self.server = register_models(Server("tenants"), listed=False)

    def tearDown(self) -> None:
        declared._servers.pop("tenants", None)

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps=STEPS)
    def test_listeners_are_notified_of_rows_they_see_or_saw(self, steps):
        tenants = Tenants(self.server)
        model, notified = ExpectedNotifications(tenants), []

        def listener(number: int, key: int) -> ClientSubscriptions:
            who = Principal(tenants.users[number])

            async def principal() -> Principal:
                return who

            def sent(message: Any) -> None:
                if message["method"] == "notifications/resources/updated":
                    notified.append((number, key))

            connection = Connection(State("2025-11-25", Phase.OPEN))
            made = ClientSubscriptions(self.server, connection, principal, sent)
            made.subscribe(tenants.uri(key), row_ref("shop.customer", str(key)))
            return made

        listeners = [listener(*one) for one in sorted(tenants.subscribed)]

        async def tell(news: ChangeSet) -> None:
            for one in listeners:
                if one.add_changes(news):
                    await send_together([one])

        self._run(tenants, model, steps, lambda loop, news: loop.run(tell(news)), notified)

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps=STEPS)
    def test_sessions_are_notified_of_rows_they_see_or_saw(self, steps):
        tenants = Tenants(self.server)
        model, notified = ExpectedNotifications(tenants), []
        numbers = {}
        for number, key in sorted(tenants.subscribed):
            user = tenants.users[number]
            made = sessions.create(
                server=self.server.name, owner=Principal(user).key, user=str(user.pk),
                revision="2025-11-25", client_info={}, capabilities={},
            )[1]  # fmt: skip
            sessions.subscribe(made, tenants.uri(key), row_ref("shop.customer", str(key)))
            streams.open(made, standalone=True)
            numbers[made.pk] = (number, key)

        async def tell(news: ChangeSet) -> None:
            found = SessionNotifications()
            await broadcaster.add_notifications(self.server, news, found)
            for session, marks in found.marks.items():
                assert marks == [broadcaster.URI + tenants.uri(numbers[session][1])]
                notified.append(numbers[session])
            await run_with_retries(sessions.store_visibility, found.visibility)

        self._run(tenants, model, steps, lambda loop, page: loop.run(tell(page)), notified)

    def _run(self, tenants, model, steps, tell, notified):
        with (
            pytest.MonkeyPatch.context() as patch,
            TestEnvironment().installed(),
            a_loop(patch) as loop,
        ):
            for step in [*steps, ("tell",)]:
                if step[0] != "tell":
                    tenants.apply(step)
                    continue
                page, changed = tenants.page()
                expected = model.after(changed)
                tell(loop, page)
                assert sorted(notified) == sorted(expected), (step, steps)
                notified.clear()
