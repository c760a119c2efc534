import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import django_mcp.models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Lock",
            fields=[
                ("name", models.CharField(max_length=30, primary_key=True, serialize=False)),
                ("taken", models.DateTimeField()),
            ],
            options={
                "verbose_name": "lock",
                "verbose_name_plural": "locks",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="RedeemedCode",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("family", models.UUIDField()),
                ("expires", models.DateTimeField(db_index=True)),
            ],
            options={
                "verbose_name": "redeemed code",
                "verbose_name_plural": "redeemed codes",
            },
        ),
        migrations.CreateModel(
            name="ClientProfile",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "client_id",
                    models.CharField(max_length=255, unique=True, verbose_name="client id"),
                ),
                (
                    "source",
                    models.CharField(
                        choices=[
                            ("manual", "registered by hand"),
                            ("dcr", "registered itself"),
                            ("cimd", "by its metadata document"),
                        ],
                        max_length=10,
                        verbose_name="source",
                    ),
                ),
                ("name", models.CharField(blank=True, max_length=100, verbose_name="name")),
                (
                    "client_uri",
                    models.CharField(blank=True, max_length=512, verbose_name="web site"),
                ),
                ("logo_uri", models.CharField(blank=True, max_length=512, verbose_name="logo")),
                (
                    "application_type",
                    models.CharField(blank=True, max_length=10, verbose_name="kind of application"),
                ),
                (
                    "auth_method",
                    models.CharField(blank=True, max_length=30, verbose_name="authentication"),
                ),
                ("jwks_uri", models.CharField(blank=True, max_length=512, verbose_name="keys")),
                ("digest", models.CharField(blank=True, db_index=True, max_length=64)),
                ("address", models.CharField(blank=True, max_length=64)),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, verbose_name="created"),
                ),
                ("fetched", models.DateTimeField(null=True, verbose_name="document fetched")),
                (
                    "last_authorized",
                    models.DateTimeField(null=True, verbose_name="last authorized"),
                ),
                ("last_used", models.DateTimeField(null=True, verbose_name="last used")),
                ("blocked", models.DateTimeField(blank=True, null=True, verbose_name="blocked")),
            ],
            options={
                "verbose_name": "client",
                "verbose_name_plural": "clients",
                "indexes": [
                    models.Index(fields=["address", "created"], name="mcp_client_address"),
                    models.Index(fields=["last_authorized", "created"], name="mcp_client_unused"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Consent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "client_id",
                    models.CharField(db_index=True, max_length=255, verbose_name="client id"),
                ),
                ("resource", models.CharField(max_length=512, verbose_name="resource")),
                (
                    "scopes",
                    django_mcp.models.JSONText(default=list, verbose_name="scopes"),
                ),
                ("redirect_host", models.CharField(max_length=255, verbose_name="redirect host")),
                ("digest", models.CharField(blank=True, max_length=64)),
                (
                    "granted",
                    models.DateTimeField(default=django.utils.timezone.now, verbose_name="granted"),
                ),
                ("revoked", models.DateTimeField(null=True, verbose_name="revoked")),
                ("last_used", models.DateTimeField(null=True, verbose_name="last used")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="mcp_consents",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "consent",
                "verbose_name_plural": "consents",
            },
        ),
        migrations.CreateModel(
            name="Activity",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key", models.CharField(editable=False, max_length=64, unique=True)),
                ("client_id", models.CharField(max_length=255, verbose_name="client id")),
                ("server", models.CharField(max_length=255, verbose_name="server")),
                ("method", models.CharField(max_length=30, verbose_name="method")),
                ("name", models.CharField(max_length=200, verbose_name="name")),
                ("count", models.PositiveIntegerField(default=0, verbose_name="how often")),
                ("at", models.DateTimeField(verbose_name="last time")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="mcp_activities",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "activity",
                "verbose_name_plural": "activities",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["user", "client_id", "at"], name="mcp_activity_lately"),
                    models.Index(fields=["at"], name="mcp_activity_at"),
                ],
            },
        ),
        migrations.CreateModel(
            name="TokenBinding",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("account", models.CharField(blank=True, max_length=255)),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("family", models.UUIDField(null=True, unique=True)),
                ("checked", models.DateTimeField(null=True)),
                ("created", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "token binding",
                "verbose_name_plural": "token bindings",
                "indexes": [models.Index(fields=["account", "user"], name="mcp_binding_account")],
            },
        ),
    ]
