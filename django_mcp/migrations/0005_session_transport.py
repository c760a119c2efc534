from __future__ import annotations

from django.db import migrations, models

import django_mcp.models.fields


class Migration(migrations.Migration):
    dependencies = [("django_mcp", "0004_changes")]

    operations = [
        migrations.AddField("session", "transport", models.CharField(default="http", max_length=8)),
        migrations.AddField("session", "host", models.CharField(default="", max_length=300)),
        migrations.AddField("telling", "at", models.DateTimeField(null=True)),
        migrations.CreateModel(
            name="Sight",
            fields=[
                ("name", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("owner", models.CharField(max_length=255)),
                ("uris", django_mcp.models.fields.JSONText(default=list)),
            ],
            options={
                "verbose_name": "sight",
                "verbose_name_plural": "sights",
                "default_permissions": (),
            },
        ),
    ]
