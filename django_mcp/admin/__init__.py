"""
The Django admin for sessions, streams, events, calls, approvals, access tokens and kill switches.

Rows cannot be edited. Staff can end sessions, create and revoke tokens, and turn declarations off
and on, each with its own permission. Only superusers see the messages between clients and the
project.

- ``log``: sessions, streams, events and calls, to read, end and cancel
- ``control_room``: the page of what happens now
- ``approvals``: calls that a second person must approve
- ``audit``: the audit log, its chart by day, and its export
- ``tokens``: personal access tokens
- ``switches``: kill switches, and the page that shows who may do what
- ``inspector``: the page that calls tools, resources and prompts
- ``schema_forms``: Django forms made from JSON Schemas
"""

from __future__ import annotations

from django.contrib import admin

from ..models import Approval, AuditEntry, Call, Event, Inspector, Session, Stream, Switch, Token
from .approvals import ApprovalAdmin
from .audit import AuditEntryAdmin
from .control_room import ControlRoomAdmin
from .inspector import InspectorAdmin
from .log import CallAdmin, EventAdmin, StreamAdmin
from .switches import SwitchAdmin
from .tokens import TokenAdmin

admin.site.register(AuditEntry, AuditEntryAdmin)
admin.site.register(Session, ControlRoomAdmin)
admin.site.register(Stream, StreamAdmin)
admin.site.register(Event, EventAdmin)
admin.site.register(Call, CallAdmin)
admin.site.register(Approval, ApprovalAdmin)
admin.site.register(Token, TokenAdmin)
admin.site.register(Switch, SwitchAdmin)
admin.site.register(Inspector, InspectorAdmin)
