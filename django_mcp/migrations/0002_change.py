"""The table of changes, which every database with users or rows of registered models needs.

It is a migration of its own: a database that needs the table later is migrated back to 0001 with
``--fake``, and forward again (check ``django_mcp.W145``).
"""

from django.db import migrations, models

import django_mcp.models.sessions


class Migration(migrations.Migration):
    dependencies = [("django_mcp", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Change",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("seq", models.BigIntegerField(db_index=True, null=True)),
                ("at", models.DateTimeField(null=True)),
                ("kind", models.CharField(max_length=16)),
                ("subject", django_mcp.models.sessions.JSONText()),
            ],
            options={
                "verbose_name": "change",
                "verbose_name_plural": "changes",
                "default_permissions": (),
            },
        ),
    ]
