"""Django's admin: staff see the invoices of their tenants, without the margin."""

from django.contrib import admin

from .models import Invoice


class InvoiceAdmin(admin.ModelAdmin):
    fields = ["number", "status", "amount"]
    list_display = ["number", "status", "amount"]
    list_filter = ["status"]
    search_fields = ["number"]
    actions = ["mark_paid"]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(tenant__user=request.user.pk)

    def save_model(self, request, obj, form, change):
        if not change:
            obj.tenant = request.user.groups.get()
        super().save_model(request, obj, form, change)

    @admin.action(permissions=["change"], description="Mark selected invoices as paid")
    def mark_paid(self, request, queryset):
        self.message_user(request, f"{queryset.update(status='paid')} paid")


admin.site.register(Invoice, InvoiceAdmin)
