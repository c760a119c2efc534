"""Mutations that weaken the MCP endpoint: access by tokens, and its end after revocation."""

from __future__ import annotations

from ..mutation import Edit, Mutation

VERIFIER, DOCUMENTS = "oauth/verifier.py", "verifiers/protected_resource.py"
CHALLENGES = "transports/http/security.py"
CALLERS, GUARDS = "transports/http/authentication.py", "transports/http/security.py"
SESSION = ("test_session_of_another_user_or_client_is_not_found",)
ENDED = ("test_revocation_cancels_calls_and_closes_streams",
         "test_revocation_cancels_calls_without_a_session")  # fmt: skip
IDENTIFIED = (
    '    token = bearer(exchange.headers.get("authorization"))\n    if token is None and not'
)
# Who is let in has a stream, which does not end while a test waits for a refusal.
STREAMS = "assert |AssertionError|TimeoutError"
ELSEWHERE = ("test_token_for_another_resource_is_rejected",)

# A principal has the token.
KEEPS_TOKEN = Edit(
    "auth/principal.py",
    "                found[n] = None if row is None else self.principal_of(row, requests[n][1])",
    "                known = row and self.principal_of(row, requests[n][1])\n"
    "                auth = known and Auth("
    "known.auth.scopes, known.auth.application, key=requests[n][0])\n"
    "                found[n] = known and Principal(known.user, auth)",
)

ROWS = (
    Mutation(
        "T5", "a token is for the server that it names",
        (Edit(VERIFIER, "if resource(server) not in map(canonical, row.resource or ()):",
              "if False:"),),
        (*ELSEWHERE, "test_token_for_another_server_is_rejected_in_every_revision"),
    ),
    Mutation(
        "T5", "a token that names none is for none, as it is for all in django-oauth-toolkit",
        (Edit(VERIFIER, "if resource(server) not in map(canonical, row.resource or ()):",
              "if row.resource and resource(server) not in map(canonical, row.resource):"),),
        ELSEWHERE,
    ),
    Mutation(
        "T5", "a name is not a prefix, as it is in django-oauth-toolkit",
        (Edit(VERIFIER, "if resource(server) not in map(canonical, row.resource or ()):",
              "if not any(resource(server).startswith(one) for one in row.resource or ()):"),),
        ELSEWHERE,
    ),
    Mutation(
        "T5", "nobody's name and no query is in a name",
        (Edit("verifiers/protected_resource.py",
              'if not (scheme and host) or "@" in parts.netloc or parts.query or "#" in uri:',
              "if not (scheme and host):"),),
        ELSEWHERE,
    ),
    Mutation(
        "T5", "a registration token is none",
        (Edit(VERIFIER, "if oauth2_settings.DCR_REGISTRATION_SCOPE in scopes:", "if False:"),),
        ("test_token_without_a_scope_of_ours_is_rejected",),
    ),
    Mutation(
        "T5", "a token has a scope of ours",
        (Edit(VERIFIER, "if scopes.isdisjoint(mcp.SCOPES):", "if False:"),),
        ("test_token_without_a_scope_of_ours_is_rejected",),
    ),
    Mutation(
        "T7", "what a tool is told of a token has no token",
        (KEEPS_TOKEN,),
        ("test_tools_forms_and_views_do_not_get_the_token",),
    ),
    Mutation(
        "T7", "no request that is made for views and forms has the header",
        (KEEPS_TOKEN,
         Edit("declarations/request.py", '        "HTTP_HOST": host,\n',
              '        "HTTP_HOST": host,\n'
              '        "HTTP_AUTHORIZATION": f"Bearer {request.auth and request.auth.key}",\n')),
        ("test_tools_forms_and_views_do_not_get_the_token", "test_resources_do_not_get_the_token"),
    ),
    Mutation(
        "T7", "no token is in the context of a task",
        (Edit(CALLERS, IDENTIFIED,
              '    token = bearer(exchange.headers.get("authorization"))\n'
              "    from contextvars import ContextVar\n\n"
              '    ContextVar("token").set(token)\n'
              "    if token is None and not"),),
        ("test_tools_forms_and_views_do_not_get_the_token",),
    ),
    Mutation(
        "T7", "no log has a token",
        (Edit(CALLERS, IDENTIFIED,
              '    token = bearer(exchange.headers.get("authorization"))\n'
              '    __import__("logging").getLogger("django_mcp").debug("%s comes", token)\n'
              "    if token is None and not"),),
        ("test_tools_forms_and_views_do_not_get_the_token",),
    ),
    Mutation(
        "T7", "nothing else reads the header",
        (Edit("bridges/views/requests.py", "class ViewRequest(WSGIRequest):",
              'PASSED = "Authorization"\n\n\nclass ViewRequest(WSGIRequest):'),),
        ("test_only_listed_modules_read_the_authorization_header",),
    ),
    Mutation(
        "T8", "a token in a query is none",
        (Edit(CALLERS, IDENTIFIED,
              '    query = exchange.scope["query_string"].decode()\n'
              '    token = bearer(exchange.headers.get("authorization")) or (\n'
              '        query.removeprefix("access_token=") if "access_token=" in query else None\n'
              "    )\n    if token is None and not"),),
        ("test_token_outside_the_header_is_ignored",),
    ),
    Mutation(
        "T8", "a token in a cookie is none",
        (Edit(CALLERS, IDENTIFIED,
              '    cookie = dict(exchange.scope["headers"]).get(b"cookie", b"").decode()\n'
              '    token = bearer(exchange.headers.get("authorization")) or (\n'
              '        cookie.removeprefix("access_token=") or None\n'
              "    )\n    if token is None and not"),),
        ("test_token_outside_the_header_is_ignored",),
    ),
    Mutation(
        "T8", "a token by another scheme is none",
        (Edit(CALLERS, 'return token.strip() if scheme.lower() == "bearer" else None',
              "return token.strip() or scheme or None"),),
        ("test_token_with_another_scheme_is_ignored",),
    ),
    Mutation(
        "T9", "a session is its owner's alone",
        (Edit(CALLERS, "        if session.owner == exchange.principal.key:\n",
              "        if token is not None:\n"),),
        SESSION,
        by=STREAMS,
    ),
    Mutation(
        "T9", "whoever shows another's session is in the log",
        (Edit(CALLERS, "        _log_misuse(session, exchange.principal)\n", "        pass\n"),),
        SESSION,
        by=STREAMS,
    ),
    Mutation(
        "T9", "a session is one client's",
        (Edit("auth/principal.py",
              'application = self.auth.application if self.auth else None',
              'application = None'),),
        SESSION,
        by=STREAMS,
    ),
    Mutation(
        "T9", "a session is no credential",
        (Edit(CALLERS, "        if session.owner == exchange.principal.key:\n",
              "        if token is None or session.owner == exchange.principal.key:\n"),
         Edit(CALLERS, "    if token is None and not exchange.server._catalog.has_public:\n",
              "    if token is None and id is None:\n")),
        ("test_session_id_without_a_token_is_rejected",),
        by=STREAMS,
    ),
    Mutation(
        "T9", "a session is not one token's",
        (Edit("auth/principal.py",
              'self.auth.key if self.auth else "")',
              "str(self.auth and self.auth.expires))"),),
        ("test_session_continues_with_a_refreshed_token",),
        by="assert |AssertionError|KeyError|tests.client.RpcError|TypeError",
    ),
    Mutation(
        "T9", "what a call was asked is its caller's alone",
        (Edit("calls/interaction.py", "digest(server.name, principal.key, call.method,",
              "digest(server.name, call.method,"),),
        ("test_request_state_of_another_user_or_client_is_rejected",),
    ),
    Mutation(
        "T20", "hosts are the project's own",
        (Edit(GUARDS, "if len(host) > MAX_HOST_LENGTH or not _is_allowed(host, allowed_hosts()):",
              "if len(host) > MAX_HOST_LENGTH:"),),
        ("test_request_of_another_host_or_origin_is_rejected",),
    ),
    Mutation(
        "T20", "origins are the project's own",
        (Edit(GUARDS, "    if not _is_trusted(origin, exchange):\n", "    if False:\n"),),
        ("test_request_of_another_host_or_origin_is_rejected",
         "test_localhost_origin_is_rejected_unless_in_development"),
    ),
    Mutation(
        "T20", "whatever host a page was made ours by, its origin is not",
        (Edit(GUARDS, "    if _is_own(exchange.host, allowed_hosts()):\n", "    if True:\n"),),
        ("test_rebound_host_is_rejected_though_every_host_is_allowed",),
    ),
    Mutation(
        "T20", "this machine's own names are for development",
        (Edit(GUARDS, "return HOSTS_UNDER_DEBUG if project.DEBUG and not hosts else hosts",
              "return (*HOSTS_UNDER_DEBUG, *hosts)"),),
        ("test_localhost_origin_is_rejected_unless_in_development",),
    ),
    Mutation(
        "T21", "pages may read the challenge",
        (Edit(GUARDS, 'b"mcp-session-id, www-authenticate, retry-after"', 'b"mcp-session-id"'),),
        ("test_only_trusted_origins_may_read_a_challenge",),
    ),
    Mutation(
        "T21", "no page is let in with credentials",
        (Edit("verifiers/protected_resource.py", "    response.headers.pop(CREDENTIALS, None)\n",
              '    response[CREDENTIALS] = "true"\n'),),
        ("test_pages_of_any_origin_may_get_tokens_without_credentials",),
    ),
    Mutation(
        "T21", "preflights are answered",
        (Edit("oauth/urls.py", 'cors("POST")(closes_connections(limits_body(view.as_view())))',
              "closes_connections(limits_body(view.as_view()))"),),
        ("test_pages_of_any_origin_may_get_tokens_without_credentials",),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T22", "who may not sign in does not come in",
        (Edit(VERIFIER, "if user is None or not user.is_active:", "if user is None:"),
         Edit("auth/principal.py", "bool(self.user.is_authenticated and self.user.is_active)",
              "bool(self.user.is_authenticated)")),
        ("test_user_deactivated_without_a_signal_is_rejected",
         "test_revocation_cancels_calls_and_closes_streams"),
    ),
    Mutation(
        "T24", "a stream ends with its token",
        (Edit("transports/http/authentication.py", "    if expires is None:\n", "    if True:\n"),),
        ("test_stream_ends_with_its_token_and_resumes_with_a_new_one",
         "test_subscription_ends_with_its_token"),
        by=STREAMS,
    ),
    Mutation(
        "T24", "a token ends",
        (Edit(VERIFIER, "    if row.expires <= timezone.now():\n", "    if False:\n"),),
        ("test_stream_ends_with_its_token_and_resumes_with_a_new_one",),
        by=STREAMS,
    ),
    Mutation(
        "T24", "a result is fetched by its caller alone",
        (Edit(CALLERS, "        if session.owner == exchange.principal.key:\n",
              "        if token is not None:\n"),),
        ("test_call_outlives_its_token_and_only_its_caller_gets_the_result",),
        by=STREAMS,
    ),
    Mutation(
        "T24", "what was taken back ends what goes on",
        (Edit(VERIFIER, "return {key: pair in valid for key, pair in pairs.items()}",
              "return {key: True for key, pair in pairs.items()}"),),
        ENDED,
        by=STREAMS,
    ),
    Mutation(
        "T24", "a blocked client has nothing open",
        (Edit(VERIFIER, "rows.filter(owned_by(users), ~Exists(blocked()), application__in",
              "rows.filter(owned_by(users), application__in"),),
        ENDED,
        by=STREAMS,
    ),
    Mutation(
        "T24", "a rotation takes nothing back",
        (Edit(VERIFIER, ".union(refresh.values_list(*OWNER_COLUMNS))", ""),),
        ("test_refresh_keeps_open_calls",),
        by=STREAMS,
    ),
    Mutation(
        "T24", "it is looked at by itself",
        (Edit("calls/callers.py", "                await self._check_and_log_errors()\n", ""),),
        ("test_revocations_are_checked_periodically",),
        by=STREAMS,
    ),
    Mutation(
        "T26", "metadata is made from settings",
        (Edit(DOCUMENTS, "        return JsonResponse(\n            found, headers=",
              '        here = f"{request.scheme}://{request.get_host()}"\n'
              "        found = {\n"
              "            name: value.replace('https://shop.example', here)\n"
              "            if isinstance(value, str)\n            else value\n"
              "            for name, value in found.items()\n        }\n"
              "        return JsonResponse(\n            found, headers="),),
        ("test_forged_host_does_not_change_metadata",),
    ),
    Mutation(
        "T26", "the challenge is made from settings",
        (Edit(CALLERS, "        raise challenge(exchange)\n    exchange.principal, session",
              "        refused = challenge(exchange)\n"
              "        refused.headers = tuple(\n"
              "            (name, value.replace(b'shop.example', exchange.host.encode()))\n"
              "            for name, value in refused.headers\n        )\n"
              "        raise refused\n    exchange.principal, session"),),
        ("test_forged_host_does_not_change_the_challenge",),
    ),
    Mutation(
        "T27", "nothing breaks out of the challenge",
        (Edit(CHALLENGES, 'return re.sub(r"[^ !#-\\[\\]-~]", "?", text)', "return text"),),
        ("test_scope_in_the_challenge_is_quoted",),
        by="assert |AssertionError",
    ),
)  # fmt: skip
