"""Values of columns and fields, and the number of queries."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

import django_mcp as mcp
from tests.shop.models import Badge, Company, Customer, Invoice, Place, Sample, Wearer

from .office import office
from .test_attacks import data, error

pytestmark = [pytest.mark.urls("tests.bridges.admin_site.office"), pytest.mark.django_db]


@pytest.fixture
def root(connect, server):
    models = [Sample, Wearer, Badge, Company, Invoice]
    mcp.register_admin(office, models, operations=["create", "update"], server=server)
    return connect(User.objects.create_superuser("root"), server=server)


@pytest.fixture
def sample(db):
    return Sample.objects.create(
        name="One", moment=datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        day=datetime.date(2026, 1, 2), clock=datetime.time(3, 4), price=Decimal("1.500"),
        lasts=datetime.timedelta(hours=1), token=uuid.UUID(int=7), checked=True,
        place=Place.objects.create(name="Here"), weight=1.5, address="10.0.0.1",
    )  # fmt: skip


SHOWN = {
    "name": "One", "moment": "2026-01-02T03:04:05+00:00", "day": "2026-01-02",
    "clock": "03:04:00", "lasts": "P0DT01H00M00S", "price": "1.500",
    "token": "00000000-0000-0000-0000-000000000007", "checked": True,
}  # fmt: skip


def test_columns_and_fields_of_all_types(root, sample):
    (row,) = data(root.call("search_sample"))["results"]
    assert row == {"_key": sample.pk, **SHOWN, "place": "Here"}
    shown = data(root.call("read_sample", _key=sample.pk))
    place = {"_key": sample.place_id, "_text": "Here"}
    more = {"_text": "One", "nickname": None, "weight": 1.5, "rank": 0, "address": "10.0.0.1"}
    shown_on_page = {name: value for name, value in SHOWN.items() if name != "token"}
    assert shown == {"_key": sample.pk, **shown_on_page, **more, "place": place}


def test_what_is_read_can_be_written(root, sample):
    shown = data(root.call("read_sample", _key=sample.pk))
    given = {name: value for name, value in shown.items() if not name.startswith("_")}
    given |= {"place": shown["place"]["_key"], "nickname": ""}
    given["token"] = SHOWN["token"]
    assert "token" in error(root.call("create_sample", **given))  # it sounds like a secret
    del given["token"]
    made = data(root.call("create_sample", **given))
    copy = data(root.call("read_sample", _key=made["_key"]))
    assert copy == shown | {"_key": made["_key"]}


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({"checked": True}, 1), ({"checked": False}, 1), ({"day__gte": "2026-01-02"}, 1),
        ({"day__lt": "2026-01-02"}, 0), ({"day__isnull": True}, 1), ({"place__isnull": True}, 1),
        ({"nickname__isempty": False}, 1), ({"nickname__isempty": True}, 1),
    ],
)  # fmt: skip
def test_list_filters(root, sample, filters, count):
    Sample.objects.create(name="Two", nickname="2")
    assert data(root.call("search_sample", **filters))["count"] == count


def test_filter_by_a_related_row(root, sample):
    for name in ("There", "Nowhere"):
        Sample.objects.create(name=name, place=Place.objects.create(name=name))
    found = data(root.call("search_sample", place=sample.place_id))
    assert [row["name"] for row in found["results"]] == ["One"]


def test_foreign_key_to_another_column_and_text_keys(root):
    Badge.objects.create(code="a/b", colour="red")
    place = Place.objects.create(name="Here")
    made = data(root.call("create_wearer", badge="red", locker=place.pk))
    shown = data(root.call("read_wearer", _key=made["_key"]))
    assert shown["badge"] == {"_key": "red", "_text": "a/b"}
    assert data(root.call("read_badge", _key="a/b"))["colour"] == "red"
    assert data(root.call("update_badge", _key="a/b", colour="red"))["_key"] == "a/b"
    assert "badge" in error(root.call("create_wearer", badge="a/b", locker=place.pk))


def test_queries_do_not_grow_with_the_rows(root, invoice):
    def queries(tool, **arguments):
        with CaptureQueriesContext(connection) as captured:
            found = data(root.call(tool, **arguments))
        return len(captured), found

    def both():
        searching, page = queries("search_invoice", limit=3)
        reading, company = queries("read_company", _key=invoice.company_id)
        return (searching, reading), (len(page["results"]), len(company["customers"]))

    invoice.customer.referred_by = invoice.customer
    invoice.customer.save()
    both()  # fills the caches of the process
    one, counts = both()
    assert counts == (1, 1)
    for number in range(2, 6):
        customer = Customer.objects.create(
            company=invoice.company, name=str(number), referred_by=invoice.customer
        )
        Invoice.objects.create(
            company=invoice.company, customer=customer, number=f"A-{number}", total=number,
            issued=datetime.date(2026, 1, number),
        )  # fmt: skip
    many, counts = both()
    assert counts == (3, 5)
    assert many == one


def test_conflict_that_only_the_database_sees(root, sample, monkeypatch):
    def save(self, *args, **kwargs):
        from django.db import IntegrityError

        raise IntegrityError("DETAIL: Key (token)=(secret) already exists.")

    monkeypatch.setattr(Sample, "save", save)
    found = error(root.call("update_sample", _key=sample.pk, name="Two"))
    assert found == "Nothing was saved: it would be in conflict with other data."
