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
                ("request_id", django_mcp.models.JSONText()),
                ("request_digest", models.CharField(max_length=64)),
                ("method", models.CharField(max_length=100, verbose_name="method")),
                (
                    "name",
                    models.CharField(
                        db_default="", default="", max_length=128, verbose_name="name"
                    ),
                ),
                ("params", django_mcp.models.JSONText(default=dict)),
                ("meta", django_mcp.models.JSONText(default=dict)),
                ("user", models.CharField(max_length=255, null=True)),
                ("scopes", django_mcp.models.JSONText(null=True)),
                ("process", models.CharField(default="", max_length=32, verbose_name="process")),
                ("fence", models.IntegerField(default=0, verbose_name="fencing token")),
                ("runs", models.IntegerField(default=0, verbose_name="runs")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("running", "running"),
                            ("parked", "waiting for an answer"),
                            ("done", "done"),
                        ],
                        default="running",
                        max_length=8,
                        verbose_name="state",
                    ),
                ),
                ("cancelled", models.BooleanField(default=False, verbose_name="cancelled")),
                ("atomic", models.BooleanField(default=False)),
                ("high_water", models.FloatField(null=True)),
                ("known", django_mcp.models.JSONText(default=dict)),
                ("rounds", models.SmallIntegerField(default=0, verbose_name="rounds")),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, verbose_name="created"),
                ),
            ],
            options={
                "verbose_name": "call",
                "verbose_name_plural": "calls",
                "default_permissions": ("view",),
                "permissions": [("cancel_call", "Can cancel call")],
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
                ("uris", django_mcp.models.JSONText(default=list)),
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
                ("key", django_mcp.models.JSONText(default=str)),
                ("digest", models.CharField(max_length=64)),
                ("wire", django_mcp.models.JSONText()),
                ("answer", django_mcp.models.JSONText(null=True)),
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
                ("server", models.CharField(max_length=255, verbose_name="server")),
                (
                    "transport",
                    models.CharField(default="http", max_length=8, verbose_name="transport"),
                ),
                ("host", models.CharField(default="", max_length=300, verbose_name="host")),
                ("owner", models.CharField(max_length=255, verbose_name="owner")),
                ("network", models.CharField(db_default="", default="", max_length=32)),
                ("user", models.CharField(max_length=255, null=True)),
                ("scopes", django_mcp.models.JSONText(null=True)),
                ("revision", models.CharField(max_length=16, verbose_name="revision")),
                ("client_info", django_mcp.models.JSONText(default=dict)),
                ("capabilities", django_mcp.models.JSONText(default=dict)),
                ("initialized", models.BooleanField(default=False, verbose_name="initialized")),
                (
                    "log_level",
                    models.CharField(default="info", max_length=16, verbose_name="log level"),
                ),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, verbose_name="created"),
                ),
                (
                    "last_seen",
                    models.DateTimeField(
                        db_index=True, default=django.utils.timezone.now, verbose_name="last seen"
                    ),
                ),
                ("current", models.BigIntegerField(null=True)),
                ("pending_changes", django_mcp.models.JSONText(default=list)),
                ("streams", models.IntegerField(default=0)),
                ("subscriptions", models.IntegerField(default=0, verbose_name="subscriptions")),
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
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                to="django_mcp.session",
                verbose_name="session",
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
                ("key", django_mcp.models.JSONText()),
                ("value", django_mcp.models.JSONText(null=True)),
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
                ("standalone", models.BooleanField(default=False, verbose_name="standalone")),
                ("last", models.BigIntegerField(default=0, verbose_name="last event")),
                ("first", models.BigIntegerField(default=1, verbose_name="first event")),
                ("size", models.BigIntegerField(default=0, verbose_name="size in bytes")),
                (
                    "pending_responses",
                    models.IntegerField(default=0, verbose_name="pending responses"),
                ),
                ("closed", models.BooleanField(default=False, verbose_name="closed")),
                ("ended", models.DateTimeField(db_index=True, null=True, verbose_name="ended")),
                ("reader", models.IntegerField(default=1, verbose_name="latest connection")),
                ("released", models.IntegerField(default=0, verbose_name="released connections")),
                ("nonce", models.CharField(default="", max_length=32)),
                ("pong", models.CharField(db_default="", default="", max_length=80)),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, verbose_name="created"),
                ),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        to="django_mcp.session",
                        verbose_name="session",
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
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                to="django_mcp.stream",
                verbose_name="stream",
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
                ("uri", django_mcp.models.JSONText()),
                ("visible", models.BooleanField(default=True)),
                ("row_ref", models.CharField(db_index=True, default="", max_length=255)),
                ("scopes", django_mcp.models.JSONText(null=True)),
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
                ("server", models.CharField(max_length=200, verbose_name="server")),
                ("thing", models.CharField(blank=True, max_length=200, verbose_name="declaration")),
                ("group", models.CharField(blank=True, max_length=64, verbose_name="group")),
                ("client", models.CharField(blank=True, max_length=255, verbose_name="client")),
                ("rate", models.CharField(blank=True, max_length=32, verbose_name="limit")),
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
                        verbose_name="added by",
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
                    django_mcp.models.JSONText(blank=True, default=list, verbose_name="scopes"),
                ),
                (
                    "created",
                    models.DateTimeField(
                        default=django.utils.timezone.now, editable=False, verbose_name="created"
                    ),
                ),
                (
                    "issued_by",
                    models.ForeignKey(
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="issued by",
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
                ("seq", models.BigIntegerField(verbose_name="number")),
                ("data", models.TextField()),
                ("size", models.IntegerField(verbose_name="size in bytes")),
                ("final", models.BooleanField(default=False, verbose_name="final")),
                ("nonce", models.CharField(default="", max_length=32)),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, verbose_name="created"),
                ),
                (
                    "stream",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="django_mcp.stream",
                        verbose_name="stream",
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
            constraint=models.UniqueConstraint(
                fields=("server", "thing", "group", "client"), name="mcp_switch_once"
            ),
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "at",
                    models.DateTimeField(default=django.utils.timezone.now, verbose_name="time"),
                ),
                ("server", models.CharField(max_length=255, verbose_name="server")),
                ("method", models.CharField(max_length=32, verbose_name="method")),
                ("name", models.CharField(max_length=255, verbose_name="name")),
                ("user", models.CharField(max_length=255, null=True, verbose_name="user id")),
                ("username", models.CharField(blank=True, max_length=255, verbose_name="user")),
                ("client", models.CharField(blank=True, max_length=255, verbose_name="client")),
                (
                    "client_name",
                    models.CharField(blank=True, max_length=255, verbose_name="client name"),
                ),
                ("session", models.BigIntegerField(null=True, verbose_name="session")),
                ("transport", models.CharField(max_length=16, verbose_name="transport")),
                ("revision", models.CharField(max_length=16, verbose_name="protocol revision")),
                ("approval", models.BigIntegerField(null=True, verbose_name="approval")),
                (
                    "arguments",
                    django_mcp.models.JSONText(null=True, verbose_name="arguments"),
                ),
                ("outcome", models.CharField(max_length=16, verbose_name="outcome")),
                ("error", models.CharField(blank=True, max_length=255, verbose_name="error")),
                ("duration", models.FloatField(verbose_name="duration")),
                ("queries", models.IntegerField(verbose_name="queries")),
                ("rows_written", models.IntegerField(verbose_name="rows written")),
                ("trace_id", models.CharField(blank=True, max_length=32, verbose_name="trace id")),
            ],
            options={
                "verbose_name": "audit entry",
                "verbose_name_plural": "audit entries",
                "permissions": [("export_auditentry", "Can export audit log")],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        fields=["at", "id", "outcome", "method", "server", "session"],
                        name="mcp_audit_at",
                    ),
                    models.Index(fields=["client", "id"], name="mcp_audit_client"),
                    models.Index(fields=["name", "id"], name="mcp_audit_name"),
                    models.Index(fields=["user", "id"], name="mcp_audit_user"),
                    models.Index(fields=["username", "id"], name="mcp_audit_username"),
                    models.Index(fields=["trace_id", "id"], name="mcp_audit_trace"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Inspector",
            fields=[],
            options={
                "verbose_name": "inspector",
                "verbose_name_plural": "inspector",
                "permissions": [
                    ("use_inspector", "Can use the inspector"),
                    ("impersonate_in_inspector", "Can act as another user in the inspector"),
                ],
                "proxy": True,
                "default_permissions": (),
                "indexes": [],
                "constraints": [],
            },
            bases=("django_mcp.call",),
        ),
        migrations.CreateModel(
            name="Approval",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("server", models.CharField(max_length=255, verbose_name="server")),
                ("tool", models.CharField(max_length=255, verbose_name="tool")),
                (
                    "permission",
                    models.CharField(max_length=255, verbose_name="permission to decide"),
                ),
                (
                    "application",
                    models.CharField(blank=True, max_length=255, verbose_name="application"),
                ),
                ("client", models.CharField(blank=True, max_length=255, verbose_name="client")),
                ("caller", django_mcp.models.JSONText(default=dict)),
                (
                    "arguments",
                    django_mcp.models.JSONText(default=dict, verbose_name="arguments"),
                ),
                ("has_secrets", models.BooleanField(default=False)),
                ("digest", models.CharField(max_length=64)),
                ("open", models.BooleanField(default=True, null=True)),
                (
                    "status",
                    models.SmallIntegerField(
                        choices=[
                            (0, "waiting"),
                            (1, "approved"),
                            (2, "refused"),
                            (3, "used"),
                            (4, "expired"),
                        ],
                        default=0,
                        verbose_name="status",
                    ),
                ),
                ("holder", models.CharField(default="", max_length=64)),
                (
                    "created",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="requested"
                    ),
                ),
                ("expires", models.DateTimeField(verbose_name="expires")),
                ("decided", models.DateTimeField(null=True, verbose_name="decided")),
                ("reason", models.CharField(blank=True, max_length=1000, verbose_name="reason")),
                ("used", models.DateTimeField(null=True, verbose_name="used")),
                (
                    "decided_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="decided by",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "approval",
                "verbose_name_plural": "approvals",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["status", "-id"], name="django_mcp_approval_status"),
                    models.Index(fields=["expires"], name="django_mcp_approval_expires"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("digest", "open"), name="django_mcp_approval_open"
                    )
                ],
            },
        ),
    ]
