from django.db import migrations

import django_mcp.models.fields


class Migration(migrations.Migration):
    dependencies = [("django_mcp", "0006_switch")]
    operations = [
        migrations.AddField("subscription", "scopes", django_mcp.models.fields.JSONText(null=True)),
    ]
