import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import django_mcp.models.sessions


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="BroadcastCursor",
            fields=[
                ("name", models.CharField(max_length=200, primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField(default=0)),
                ("until", models.BigIntegerField(default=0)),
                ("notified", models.BigIntegerField(default=0)),
                ("claim", models.BigIntegerField(default=0)),
                ("holder", models.CharField(default="", max_length=64)),
                ("at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name": "broadcast cursor",
                "verbose_name_plural": "broadcast cursors",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Call",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("request_id", django_mcp.models.sessions.JSONText()),
                ("request_digest", models.CharField(max_length=64)),
                ("method", models.CharField(max_length=100)),
                ("params", django_mcp.models.sessions.JSONText(default=dict)),
                ("meta", django_mcp.models.sessions.JSONText(default=dict)),
                ("user", models.CharField(max_length=255, null=True)),
                ("scopes", django_mcp.models.sessions.JSONText(null=True)),
                ("process", models.CharField(default="", max_length=32)),
                ("fence", models.IntegerField(default=0)),
                ("runs", models.IntegerField(default=0)),
                ("state", models.CharField(default="running", max_length=8)),
                ("cancelled", models.BooleanField(default=False)),
                ("atomic", models.BooleanField(default=False)),
                ("high_water", models.FloatField(null=True)),
                ("known", django_mcp.models.sessions.JSONText(default=dict)),
                ("rounds", models.SmallIntegerField(default=0)),
                ("created", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "verbose_name": "call",
                "verbose_name_plural": "calls",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Process",
            fields=[
                ("id", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("beats", models.BigIntegerField(default=0)),
                ("started", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "verbose_name": "process",
                "verbose_name_plural": "processes",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="VisibilitySnapshot",
            fields=[
                ("name", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("owner", models.CharField(max_length=255)),
                ("uris", django_mcp.models.sessions.JSONText(default=list)),
            ],
            options={
                "verbose_name": "visibility snapshot",
                "verbose_name_plural": "visibility snapshots",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Ask",
            fields=[
                ("id", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("key", django_mcp.models.sessions.JSONText(default=str)),
                ("digest", models.CharField(max_length=64)),
                ("wire", django_mcp.models.sessions.JSONText()),
                ("answer", django_mcp.models.sessions.JSONText(null=True)),
                ("open", models.BooleanField(default=True)),
                ("seconds", models.FloatField()),
                ("deadline", models.DateTimeField(db_index=True)),
                (
                    "call",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="django_mcp.call"
                    ),
                ),
            ],
            options={
                "verbose_name": "question",
                "verbose_name_plural": "questions",
                "default_permissions": (),
            },
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
        migrations.CreateModel(
            name="Session",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("server", models.CharField(max_length=255)),
                ("transport", models.CharField(default="http", max_length=8)),
                ("host", models.CharField(default="", max_length=300)),
                ("owner", models.CharField(max_length=255)),
                ("network", models.CharField(db_default="", default="", max_length=32)),
                ("user", models.CharField(max_length=255, null=True)),
                ("scopes", django_mcp.models.sessions.JSONText(null=True)),
                ("revision", models.CharField(max_length=16)),
                ("client_info", django_mcp.models.sessions.JSONText(default=dict)),
                ("capabilities", django_mcp.models.sessions.JSONText(default=dict)),
                ("initialized", models.BooleanField(default=False)),
                ("log_level", models.CharField(default="info", max_length=16)),
                ("created", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "last_seen",
                    models.DateTimeField(db_index=True, default=django.utils.timezone.now),
                ),
                ("current", models.BigIntegerField(null=True)),
                ("pending_changes", django_mcp.models.sessions.JSONText(default=list)),
                ("streams", models.IntegerField(default=0)),
                ("subscriptions", models.IntegerField(default=0)),
            ],
            options={
                "verbose_name": "session",
                "verbose_name_plural": "sessions",
                "permissions": [("end_session", "Can end session")],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["owner", "network"], name="django_mcp_session_owner")
                ],
            },
        ),
        migrations.AddField(
            model_name="call",
            name="session",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, to="django_mcp.session"
            ),
        ),
        migrations.CreateModel(
            name="Step",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("call", models.CharField(max_length=64)),
                ("digest", models.CharField(max_length=64)),
                ("key", django_mcp.models.sessions.JSONText()),
                ("value", django_mcp.models.sessions.JSONText(null=True)),
                ("doing", models.BooleanField(default=True)),
                ("at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
            ],
            options={
                "verbose_name": "step",
                "verbose_name_plural": "steps",
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("call", "digest"), name="django_mcp_step_key")
                ],
            },
        ),
        migrations.CreateModel(
            name="Stream",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("standalone", models.BooleanField(default=False)),
                ("last", models.BigIntegerField(default=0)),
                ("first", models.BigIntegerField(default=1)),
                ("size", models.BigIntegerField(default=0)),
                ("pending_responses", models.IntegerField(default=0)),
                ("closed", models.BooleanField(default=False)),
                ("ended", models.DateTimeField(db_index=True, null=True)),
                ("reader", models.IntegerField(default=1)),
                ("released", models.IntegerField(default=0)),
                ("nonce", models.CharField(default="", max_length=32)),
                ("pong", models.CharField(db_default="", default="", max_length=80)),
                ("created", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="django_mcp.session"
                    ),
                ),
            ],
            options={
                "verbose_name": "stream",
                "verbose_name_plural": "streams",
                "default_permissions": ("view",),
            },
        ),
        migrations.AddField(
            model_name="call",
            name="stream",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.CASCADE, to="django_mcp.stream"
            ),
        ),
        migrations.CreateModel(
            name="Subscription",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("digest", models.CharField(db_index=True, max_length=64)),
                ("uri", django_mcp.models.sessions.JSONText()),
                ("visible", models.BooleanField(default=True)),
                ("place", models.CharField(db_index=True, default="", max_length=255)),
                ("scopes", django_mcp.models.sessions.JSONText(null=True)),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="django_mcp.session",
                    ),
                ),
            ],
            options={
                "verbose_name": "subscription",
                "verbose_name_plural": "subscriptions",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Switch",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("server", models.CharField(max_length=255, verbose_name="server")),
                ("thing", models.CharField(blank=True, max_length=255, verbose_name="thing")),
                ("reason", models.CharField(blank=True, max_length=200, verbose_name="reason")),
                (
                    "since",
                    models.DateTimeField(
                        default=django.utils.timezone.now, editable=False, verbose_name="since"
                    ),
                ),
                (
                    "by",
                    models.ForeignKey(
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="by",
                    ),
                ),
            ],
            options={
                "verbose_name": "kill switch",
                "verbose_name_plural": "kill switches",
                "default_permissions": ("add", "delete", "view"),
            },
        ),
        migrations.CreateModel(
            name="Token",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=100, verbose_name="name")),
                ("digest", models.CharField(editable=False, max_length=64, unique=True)),
                ("prefix", models.CharField(editable=False, max_length=8, verbose_name="prefix")),
                ("server", models.CharField(blank=True, max_length=255, verbose_name="server")),
                (
                    "scopes",
                    django_mcp.models.sessions.JSONText(
                        blank=True, default=list, verbose_name="scopes"
                    ),
                ),
                (
                    "created",
                    models.DateTimeField(
                        default=django.utils.timezone.now, editable=False, verbose_name="created"
                    ),
                ),
                ("expires", models.DateTimeField(blank=True, null=True, verbose_name="expires")),
                (
                    "last_used",
                    models.DateTimeField(editable=False, null=True, verbose_name="last used"),
                ),
                (
                    "revoked",
                    models.DateTimeField(editable=False, null=True, verbose_name="revoked"),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="mcp_tokens",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "personal access token",
                "verbose_name_plural": "personal access tokens",
                "permissions": [("revoke_token", "Can revoke token")],
                "default_permissions": ("add", "view"),
            },
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("seq", models.BigIntegerField()),
                ("data", models.TextField()),
                ("size", models.IntegerField()),
                ("final", models.BooleanField(default=False)),
                ("nonce", models.CharField(default="", max_length=32)),
                ("created", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "stream",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="django_mcp.stream",
                    ),
                ),
            ],
            options={
                "verbose_name": "event",
                "verbose_name_plural": "events",
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(fields=("stream", "seq"), name="django_mcp_event_seq")
                ],
            },
        ),
        migrations.AddIndex(
            model_name="call",
            index=models.Index(
                fields=["session", "request_digest"], name="django_mcp_call_request"
            ),
        ),
        migrations.AddIndex(
            model_name="call",
            index=models.Index(fields=["process", "state"], name="django_mcp_call_process"),
        ),
        migrations.AddConstraint(
            model_name="subscription",
            constraint=models.UniqueConstraint(
                fields=("session", "digest"), name="django_mcp_subscription_uri"
            ),
        ),
        migrations.AddConstraint(
            model_name="switch",
            constraint=models.UniqueConstraint(fields=("server", "thing"), name="mcp_switch_once"),
        ),
    ]
