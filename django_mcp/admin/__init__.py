"""
What the admin shows: sessions, what is said in them, access tokens, and what is switched off.

Rule: nothing here is edited. What can be done is to end a session, to make
and revoke a token, and to switch off and on, each by a permission of its own; what clients and the
project said to each other is shown to superusers alone.
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
