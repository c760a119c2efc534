"""The CRUD example of django-ninja's documentation, exposed in ten lines."""

from __future__ import annotations

import pytest

from tests.declarations.helpers import valid_catalog
from tests.employees.models import Department, Employee

pytestmark = [pytest.mark.urls("tests.employees.api"), pytest.mark.django_db]

DECLARATIONS = """
from django_mcp.bridges.ninja import NinjaTools
from tests.employees.api import api

@server.register(api)
class EmployeeTools(NinjaTools):
    operations = [
        "create_employee", "get_employee", "list_employees", "update_employee", "delete_employee",
    ]
"""


@pytest.fixture
def employees(server, settings, connect, alice):
    settings.ALLOWED_HOSTS = ["shop.example"]
    exec(compile(DECLARATIONS, "<crud>", "exec", dont_inherit=True), {"server": server})
    return connect(alice, server=server)


def data(result):
    assert not result["isError"], result
    return result["structuredContent"]


def test_example_is_exposed_in_at_most_ten_lines(employees, server):
    assert len([line for line in DECLARATIONS.splitlines() if line]) <= 10
    assert list(valid_catalog(server).tools) == [
        "create_employee", "get_employee", "list_employees", "update_employee", "delete_employee",
    ]  # fmt: skip


def test_employees_are_created_read_changed_and_deleted(employees):
    department = Department.objects.create(title="Sales")
    names = {"first_name": "Ann", "last_name": "Lee", "department_id": department.pk}
    made = data(employees.call("create_employee", **names, birthdate="1990-02-03"))
    found = data(employees.call("get_employee", employee_id=made["id"]))
    assert found == names | {"birthdate": "1990-02-03", "id": made["id"]}
    changed = names | {"last_name": "Ray", "birthdate": None}
    done = data(employees.call("update_employee", employee_id=made["id"], **changed))
    assert done == {"success": True}
    assert data(employees.call("list_employees")) == [changed | {"id": made["id"]}]
    assert data(employees.call("delete_employee", employee_id=made["id"])) == {"success": True}
    gone = employees.call("get_employee", employee_id=made["id"])
    assert gone["isError"] and gone["content"][0]["text"] == "Not found."
    assert not Employee.objects.exists()


def test_birthdate_that_does_not_exist_is_rejected(employees):
    names = {"first_name": "Ann", "last_name": "Lee", "department_id": 1}
    result = employees.call("create_employee", **names, birthdate="1990-02-30")
    assert result["isError"] and "birthdate" in result["content"][0]["text"]
    assert not Employee.objects.exists()
