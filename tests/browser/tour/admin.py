"""The admin of orders: approvers see in a dry run what it shows them."""

from django.contrib import admin

from .models import Order

admin.site.register(Order)
