"""Mutations that weaken refresh tokens, their revocation and their storage."""

from __future__ import annotations

from ..mutation import WITH_WRITERS, Edit, Mutation

REDEEMING = REFRESHING = "oauth/grants.py"
REVOKING, SIGNALS, VALIDATORS = "oauth/revocation.py", "oauth/revocation.py", "oauth/validators.py"

ROWS = (
    Mutation(
        "T16", "a refresh has no more scopes than its token",
        (Edit(REFRESHING, "return notes(request).scope.split()",
              "return [*notes(request).scope.split(), *(request.scope or \"\").split()]"),),
        ("test_refresh_cannot_widen_the_scopes",),
    ),
    Mutation(
        "T22", "who may not sign in has no code",
        (Edit(REDEEMING,
              "not may_use(grant.user, targets)", "not targets"),),
        ("test_user_deactivated_without_a_signal_is_rejected",
         "test_may_authorize_setting_applies_to_codes_and_refreshes"),
    ),
    Mutation(
        "T22", "who may not sign in has no refresh",
        (Edit(REFRESHING,
              "not may_use(row.user, self.set_targets(request, row.resource or (), scope.split()))",
              "not self.set_targets(request, row.resource or (), scope.split())"),),
        ("test_user_deactivated_without_a_signal_is_rejected",
         "test_may_authorize_setting_applies_to_codes_and_refreshes"),
    ),
    Mutation(
        "T22", "a user who is made inactive loses what clients have",
        (Edit(SIGNALS,
              "if not instance.is_active or _is_password_changed(instance, update_fields):",
              "if _is_password_changed(instance, update_fields):"),),
        ("test_deactivating_a_user_revokes_codes_and_tokens",),
    ),
    Mutation(
        "T22", "another password ends what clients may do",
        (Edit(SIGNALS,
              "if not instance.is_active or _is_password_changed(instance, update_fields):",
              "if not instance.is_active:"),),
        ("test_password_change_revokes_codes_and_tokens",),
    ),
    Mutation(
        "T22", "codes end as well",
        (Edit(REVOKING, "        _grants(user=user).delete()\n", ""),
         Edit(REVOKING, "    _grants(**lookups).delete()\n", "")),
        ("test_deactivating_a_user_revokes_codes_and_tokens",
         "test_password_change_revokes_codes_and_tokens"),
    ),
    Mutation(
        "T23", "a token that comes again after the grace ends its family",
        (Edit(REFRESHING, "            _revoke_family(row)\n        if use not in",
              "            pass\n        if use not in"),),
        ("test_replayed_refresh_token_after_the_grace_revokes_its_family",
         "test_reuse_after_the_successor_was_used_revokes_the_family",
         "test_reuse_without_a_grace_revokes_the_family"),
    ),
    Mutation(
        "T23", "the grace ends",
        (Edit(REFRESHING, "if successor is None or row.revoked + grace <= now:",
              "if successor is None:"),),
        ("test_reuse_without_a_grace_revokes_the_family",),
    ),
    Mutation(
        "T23", "a token whose successor was used is stolen",
        (Edit(REFRESHING, "    return _tokens().filter(revoked=None, access_token__source_refresh"
              "_token=row).first()",
              "    return _tokens().filter(token_family=row.token_family, pk__gt=row.pk)"
              ".first()"),
         Edit(REFRESHING, "return RefreshTokenUse.ADD_SIBLING, successor.access_token.scope",
              'return RefreshTokenUse.ADD_SIBLING, "mcp"')),
        ("test_reuse_after_the_successor_was_used_revokes_the_family",
         "test_revoked_refresh_token_has_no_grace",
         "test_revoked_user_or_client_has_no_grace"),
    ),
    Mutation(
        "T23", "within the grace its client gets a sibling",
        (Edit(REFRESHING, "return RefreshTokenUse.ADD_SIBLING, successor.access_token.scope",
              'return RefreshTokenUse.REVOKE_FAMILY, ""'),),
        ("test_refresh_token_can_be_reused_within_the_grace",
         "test_concurrent_refreshes_get_a_pair_each"),
    ),
    Mutation(
        "T23", "siblings are counted",
        (Edit(REFRESHING, "if issued.count() >= MAX_SIBLINGS:", "if False:"),),
        ("test_number_of_refreshes_within_the_grace_is_limited",
         "test_concurrent_refreshes_do_not_exceed_the_limit"),
    ),
    Mutation(
        "T23", "only those of the same family are siblings",
        (Edit(REFRESHING, "filter(token_family=row.token_family, **since)", "filter(**since)"),),
        ("test_refreshes_of_other_families_do_not_count",),
    ),
    Mutation(
        "T23", "a refresh token is its client's own",
        (Edit(REFRESHING, "filter(token_checksum=_token_digest(token), application=client)",
              "filter(token_checksum=_token_digest(token))"),),
        ("test_refresh_token_replayed_by_another_client_revokes_nothing",),
    ),
    Mutation(
        "T23", "who revokes one token revokes all",
        (Edit(REFRESHING, "        for row in _refresh_tokens_of(token, request.client):\n"
              "            end_family(row.token_family)\n", ""),),
        ("test_revoked_refresh_token_has_no_grace",
         "test_revoking_an_access_token_revokes_its_family"),
    ),
    Mutation(
        "T23", "a client revokes its own tokens alone",
        (Edit(REFRESHING, "own, digest = RefreshToken.objects.filter(application=client), ",
              "own, digest = RefreshToken.objects.all(), "),),
        ("test_revoking_an_access_token_revokes_its_family",),
    ),
    Mutation(
        "T23", "a refresh token ends",
        (Edit(REFRESHING,
              "    return lifetime is not None and now >= row.access_token.expires + lifetime",
              "    return False"),),
        ("test_refresh_token_expires_a_month_after_its_access_token",),
    ),
    Mutation(
        "T23", "what is judged is judged again, alone",
        (Edit(REFRESHING,
              "        use = _decide_use_locked(row)", "        use = decide_use(row)[0]"),),
        ("test_concurrent_refreshes_do_not_exceed_the_limit",),
        by="assert |AssertionError|django.db.utils|AttributeError",
        on=WITH_WRITERS,
    ),
    Mutation(
        "T23", "nobody issues tokens of a family that another ends",
        (Edit(REFRESHING, "with lock_family(row.token_family if row else None):",
              "with lock_family(None):"),
         Edit(REFRESHING,
              "    if not lock_token(row.pk):\n        return RefreshTokenUse.REJECT\n", ""),
         Edit(REFRESHING,
              "    if use is RefreshTokenUse.ADD_SIBLING and not _lock_successor(row):\n"
              "        return RefreshTokenUse.REVOKE_FAMILY\n", "")),
        ("test_revocation_waits_for_a_refresh_in_progress",),
        by="assert |AssertionError|django.db.utils",
        on=WITH_WRITERS,
    ),
    Mutation(
        "T25", "tokens are stored as digests",
        (Edit("oauth/conf.py", '    "TOKEN_STORAGE",\n', ""),),
        ("test_tokens_are_neither_stored_nor_logged",),
    ),
    Mutation(
        "T25", "what writes tokens into the log is quiet",
        (Edit(VALIDATORS, "        logging.getLogger(_name).setLevel(logging.INFO)\n",
              "        pass\n"),),
        ("test_tokens_are_neither_stored_nor_logged",),
    ),
    Mutation(
        "T25", "what was sent is in no report of an error",
        (Edit("oauth/token_endpoint.py", "    @method_decorator(sensitive_post_parameters())\n"
              "    def create_token_response", "    def create_token_response"),),
        ("test_code_and_verifier_are_hidden_in_error_reports",),
    ),
    Mutation(
        "T25", "what was to be revoked is in no report of an error",
        (Edit("oauth/token_endpoint.py", "    @method_decorator(sensitive_post_parameters())\n"
              "    def post", "    def post"),),
        ("test_revoked_token_is_hidden_in_error_reports",),
    ),
)  # fmt: skip
