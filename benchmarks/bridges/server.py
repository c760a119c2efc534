"""
The compared project with one package: `uvicorn benchmarks.bridges.server:application`.

It makes its tables and rows when it starts, and writes the token of the user into a file.
"""

import os
from importlib import import_module

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.bridges.settings")

from django.apps import apps
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.management import call_command


def fill():
    """Create a user of one of two tenants, and return their token of REST framework."""
    from django.contrib.auth.models import Group, Permission, User
    from rest_framework.authtoken.models import Token

    from .models import Invoice

    mine, other = Group.objects.create(name="Ada's"), Group.objects.create(name="Bob's")
    ada = User.objects.create(username="ada", is_staff=True)
    ada.groups.add(mine)
    ada.user_permissions.add(*Permission.objects.filter(content_type__model="invoice"))
    Invoice.objects.bulk_create(
        Invoice(tenant=tenant, number=number, status=status, amount="9.50", margin=471147)
        for tenant, number, status in (
            (mine, "A-1", "open"),
            (mine, "A-2", "paid"),
            (mine, "A-3", "paid"),
            (other, "B-1", "paid"),
            (other, "B-2", "open"),
        )
    )
    return ada, Token.objects.create(key="the-token-of-ada", user=ada).key


django = get_asgi_application()
call_command("migrate", run_syncdb=True, verbosity=0)
user, key = fill()
package = import_module(settings.COMPARED)
token = package.token(user) if hasattr(package, "token") else key
application = django
if hasattr(package, "application"):
    application = package.application(django)
elif apps.is_installed("django_mcp"):
    from django_mcp.models import Token
    from django_mcp.routing import mount

    _, token = Token.make(user, "compared")
    application = mount(django)
(settings.FOLDER / "token").write_text(token)
