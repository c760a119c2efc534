"""The function of ``APPROVALS["QUERYSET"]``, as docs/how-to/approvals.md shows it."""

from django.contrib.auth import get_user_model


def calls_of_colleagues(user, approvals):
    colleagues = get_user_model().objects.filter(companies__members=user)
    return approvals.filter(user__in=colleagues)
