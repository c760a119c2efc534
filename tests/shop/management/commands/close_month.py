"""A command of the shop, which the guide on commands exposes as a tool."""

from datetime import date

from django.core.management.base import BaseCommand, CommandError

from tests.shop.models import Invoice


class Command(BaseCommand):
    help = "Close the books of a month: all its open invoices are paid."

    def add_arguments(self, parser):
        parser.add_argument("month", type=date.fromisoformat, help="the first day of the month")
        parser.add_argument("--company", help="only the invoices of this company")
        parser.add_argument("--dry-run", action="store_true", help="only show what would be closed")

    def handle(self, *, month, company, dry_run, **options):
        if month.day != 1:
            raise CommandError(f"{month} is not the first day of a month.")
        invoices = Invoice.objects.filter(
            status=Invoice.Status.OPEN, issued__year=month.year, issued__month=month.month
        ).order_by("number")
        if company is not None:
            invoices = invoices.filter(company__name=company)
        for invoice in invoices:
            self.stdout.write(f"{invoice.number}: {invoice.total}")
        if not dry_run:
            invoices.update(status=Invoice.Status.PAID)
