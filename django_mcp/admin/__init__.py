"""
The Django admin for sessions, streams, events, calls, access tokens and kill switches.

Nothing is edited here. Sessions can be ended, tokens made and revoked, and things switched off and
on, each with its own permission. Only superusers see the messages between clients and the project.
"""

from __future__ import annotations

from django.contrib import admin

from ..models import Call, Event, Session, Stream, Switch, Token
from .log import CallAdmin, EventAdmin, SessionAdmin, StreamAdmin
from .switches import SwitchAdmin
from .tokens import TokenAdmin

admin.site.register(Session, SessionAdmin)
admin.site.register(Stream, StreamAdmin)
admin.site.register(Event, EventAdmin)
admin.site.register(Call, CallAdmin)
admin.site.register(Token, TokenAdmin)
admin.site.register(Switch, SwitchAdmin)
