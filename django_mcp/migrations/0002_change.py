"""The table of changes, which each database with users or rows of registered models needs.

It is a migration of its own because a database may need this table later than the others, when a
project registers its first model there. ``migrate --fake 0001`` and ``migrate`` then create this
table alone (check ``django_mcp.W145``).
"""

from django.db import migrations, models

import django_mcp.models


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
                ("subject", django_mcp.models.JSONText()),
            ],
            options={
                "verbose_name": "change",
                "verbose_name_plural": "changes",
                "default_permissions": (),
            },
        ),
    ]
