"""
What the admin shows: sessions, what is said in them, and access tokens.

Rule: nothing here is edited. What can be done is to end a session, and to make
and revoke a token, each by a permission of its own; what clients and the
project said to each other is shown to superusers alone.
"""

from __future__ import annotations

from django.contrib import admin

from ..models import Call, Event, Session, Stream, Token
from .log import CallAdmin, EventAdmin, SessionAdmin, StreamAdmin
from .tokens import TokenAdmin

admin.site.register(Session, SessionAdmin)
admin.site.register(Stream, StreamAdmin)
admin.site.register(Event, EventAdmin)
admin.site.register(Call, CallAdmin)
admin.site.register(Token, TokenAdmin)
