"""An admin site of the shop whose pages differ by user."""

from __future__ import annotations

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.http import HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.html import format_html

from tests.shop.models import Badge, Company, Customer, Invoice, Sample, Wearer

office = admin.AdminSite(name="office")


class CustomerInline(admin.TabularInline):
    model = Customer
    fields = ["name", "email", "referred_by"]
    extra = 2


@admin.register(Company, site=office)
class CompanyAdmin(admin.ModelAdmin):
    inlines = [CustomerInline]
    search_fields = ["name"]
    fields = ["name"]


@admin.register(Customer, site=office)
class CustomerAdmin(admin.ModelAdmin):
    list_display = ["name", "company"]
    search_fields = ["name", "notes"]
    fields = ["company", "name"]

    def get_search_fields(self, request):
        return self.search_fields if request.user.is_superuser else ["name"]


class SizeFilter(admin.SimpleListFilter):
    title = "size"
    parameter_name = "size"

    def lookups(self, request, model_admin):
        return [("large", "At least 100"), ("small", "Less than 100")]

    def queryset(self, request, queryset):
        limits = {"large": {"total__gte": 100}, "small": {"total__lt": 100}}
        return queryset.filter(**limits.get(self.value(), {}))


class NoteForm(ActionForm):
    note = forms.CharField(max_length=20, required=False)


@admin.action(description="Export selected %(verbose_name_plural)s")
def export(model_admin, request, queryset):
    numbers = ",".join(queryset.values_list("number", flat=True))
    return HttpResponse(numbers, content_type="text/csv")


@admin.register(Invoice, site=office)
class InvoiceAdmin(admin.ModelAdmin):
    list_display = ["number", "customer", "status", "total", "label"]
    list_filter = ["status", SizeFilter, "customer__company", "total"]
    list_select_related = ["customer"]
    search_fields = ["^number", "=customer__name", "customer__email__iendswith"]
    readonly_fields = ["total", "label"]
    raw_id_fields = ["tags"]
    list_editable = ["status"]
    list_per_page = 3
    save_as = True
    action_form = NoteForm
    actions = ["mark_paid", "ask", "forget", "leave", export, "refuse"]

    @admin.display(description="Label", ordering="number")
    def label(self, obj):
        return format_html("<b>{}</b><br>due &amp; open", obj.number)

    def get_queryset(self, request):
        rows = super().get_queryset(request)
        user = request.user
        return rows if user.is_superuser else rows.filter(company__members=user)

    def get_fields(self, request, obj=None):
        named = ["company", "customer", "number", "status", "total", "issued", "tags", "attachment"]
        named += ["label"]
        return [*named, "metadata"] if request.user.is_superuser else named

    def get_sortable_by(self, request):
        return ["number", "status", *(["total"] if request.user.is_superuser else [])]

    def get_list_filter(self, request):
        found = super().get_list_filter(request)
        return found if request.user.is_superuser else found[:-1]

    def formfield_for_foreignkey(self, db_field, request, **kwargs):
        if db_field.name == "customer" and not request.user.is_superuser:
            kwargs["queryset"] = Customer.objects.filter(company__members=request.user)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def has_change_permission(self, request, obj=None):
        return super().has_change_permission(request, obj) and (obj is None or obj.number != "A-9")

    @admin.action(description="Mark selected %(verbose_name_plural)s as paid")
    def mark_paid(self, request, queryset):
        count = queryset.update(status="paid")
        note = request.POST.get("note", "")
        self.message_user(request, format_html("{} <b>paid</b>{}", count, note))
        self.message_user(request, "Tell accounting.", messages.WARNING)

    @admin.action(description="Ask")
    def ask(self, request, queryset):
        queryset.update(status="paid")
        return TemplateResponse(request, "admin/delete_selected_confirmation.html", {})

    @admin.action(description="Forget", permissions=["delete"])
    def forget(self, request, queryset):
        queryset.delete()

    @admin.action(description="Leave")
    def leave(self, request, queryset):
        return HttpResponseRedirect("/office/elsewhere/")

    @admin.action(description="Refuse")
    def refuse(self, request, queryset):
        return HttpResponse("no", status=409, content_type="text/plain")


@admin.register(Wearer, site=office)
class WearerAdmin(admin.ModelAdmin):
    list_display = ["badge", "locker"]
    raw_id_fields = ["badge"]


@admin.register(Badge, site=office)
class BadgeAdmin(admin.ModelAdmin):
    search_fields = ["code"]


@admin.register(Sample, site=office)
class SampleAdmin(admin.ModelAdmin):
    list_display = ["name", "moment", "day", "clock", "lasts", "price", "token", "checked", "place"]
    list_filter = ["checked", "day", ("nickname", admin.EmptyFieldListFilter), "place"]


office.register(User, UserAdmin)
urlpatterns = [path("office/", office.urls)]
