from __future__ import annotations

from django.db import migrations

import django_mcp.models.fields


class Migration(migrations.Migration):
    dependencies = [("django_mcp", "0001_initial")]

    operations = [
        migrations.AddField("session", "scopes", django_mcp.models.fields.JSONText(null=True)),
    ]
