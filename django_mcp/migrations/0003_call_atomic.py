from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("django_mcp", "0002_session_scopes")]

    operations = [
        migrations.AddField("call", "atomic", models.BooleanField(default=False)),
    ]
