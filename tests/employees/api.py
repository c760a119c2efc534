"""The API of the CRUD example in django-ninja's documentation."""

from datetime import date

from django.shortcuts import get_object_or_404
from django.urls import path
from ninja import NinjaAPI, Schema

from .models import Employee

api = NinjaAPI(urls_namespace="employees")


class EmployeeIn(Schema):
    first_name: str
    last_name: str
    department_id: int
    birthdate: date | None = None


class EmployeeOut(EmployeeIn):
    id: int


class Created(Schema):
    id: int


class Done(Schema):
    success: bool


@api.post("/employees", response=Created)
def create_employee(request, payload: EmployeeIn):
    return Employee.objects.create(**payload.dict())


@api.get("/employees/{employee_id}", response=EmployeeOut)
def get_employee(request, employee_id: int):
    return get_object_or_404(Employee, id=employee_id)


@api.get("/employees", response=list[EmployeeOut])
def list_employees(request):
    return Employee.objects.order_by("pk")


@api.put("/employees/{employee_id}", response=Done)
def update_employee(request, employee_id: int, payload: EmployeeIn):
    employee = get_object_or_404(Employee, id=employee_id)
    for name, value in payload.dict().items():
        setattr(employee, name, value)
    employee.save()
    return {"success": True}


@api.delete("/employees/{employee_id}", response=Done)
def delete_employee(request, employee_id: int):
    get_object_or_404(Employee, id=employee_id).delete()
    return {"success": True}


urlpatterns = [path("api/", api.urls)]
