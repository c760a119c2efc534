from __future__ import annotations

from django.db import migrations, models

import django_mcp.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("django_mcp", "0003_call_atomic"),
    ]

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
                ("subject", django_mcp.models.fields.JSONText()),
            ],
            options={
                "verbose_name": "change",
                "verbose_name_plural": "changes",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Telling",
            fields=[
                ("name", models.CharField(max_length=200, primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField(default=0)),
                ("until", models.BigIntegerField(default=0)),
                ("told", models.BigIntegerField(default=0)),
                ("claim", models.BigIntegerField(default=0)),
                ("holder", models.CharField(default="", max_length=64)),
            ],
            options={
                "verbose_name": "telling",
                "verbose_name_plural": "tellings",
                "default_permissions": (),
            },
        ),
        migrations.AddField(
            model_name="subscription",
            name="place",
            field=models.CharField(db_index=True, default="", max_length=255),
        ),
        migrations.CreateModel(
            name="Interest",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("holder", models.CharField(max_length=32)),
                ("model", models.CharField(max_length=255)),
                ("since", models.DateTimeField()),
                ("at", models.DateTimeField()),
            ],
            options={
                "verbose_name": "interest",
                "verbose_name_plural": "interests",
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("holder", "model"), name="django_mcp_interest_once"
                    )
                ],
            },
        ),
    ]
