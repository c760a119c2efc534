"""Mutations that weaken the token endpoint: redemption of codes, and grants."""

from __future__ import annotations

from ..mutation import Edit, Mutation

REDEEMING = REFRESHING = "oauth/grants.py"
TARGETS, VALIDATORS = "oauth/resource_indicators.py", "oauth/validators.py"
PROTECTED = "verifiers/protected_resource.py"
AT_ONCE = "test_code_is_redeemed_once_by_concurrent_requests"

ROWS = (
    Mutation(
        "T2", "challenges are by hash, before anybody is asked",
        (Edit(VALIDATORS, "if challenge is not None and request.code_challenge_method != S256:",
              "if False:"),
         Edit(VALIDATORS, "if challenge is not None and not CHALLENGE.fullmatch(challenge):",
              "if False:")),
        ("test_weak_challenge_is_rejected_before_the_consent",),
    ),
    Mutation(
        "T2", "challenges are by hash, whatever a form says",
        (Edit(VALIDATORS, "if challenge is not None and request.code_challenge_method != S256:",
              "if False:"),
         Edit("oauth/conf.py", '    "PKCE_METHOD",\n', "")),
        ("test_posted_form_cannot_weaken_the_challenge",),
        by="DeprecationWarning: The PKCE .plain. code_challenge_method is discouraged",
    ),
    Mutation(
        "T2", "a code has the verifier of its challenge",
        (Edit(REDEEMING, "return notes(request).grant.code_challenge or None", "return None"),
         Edit(VALIDATORS, "        return True\n\n    def validate_scopes",
              "        return False\n\n    def validate_scopes")),
        ("test_code_needs_its_verifier",),
    ),
    Mutation(
        "T2", "a stored challenge that is none by hash is none",
        (Edit(REDEEMING, "return method if method == S256 else None", "return method"),),
        ("test_code_with_a_weak_challenge_is_rejected",),
    ),
    Mutation(
        "T2", "a code is its client's own",
        (Edit(REDEEMING, "Grant.objects.filter(code=code, application=client)",
              "Grant.objects.filter(code=code)"),
         Edit(REDEEMING,
              "if not super().validate_code(client_id, code, client, request, *args, **kwargs):",
              "if not super().validate_code(\n"
              "            client_id, code, grant.application, request, *args, **kwargs\n"
              "        ):")),
        ("test_code_of_another_client_is_rejected",),
    ),
    Mutation(
        "T2", "another client's code ends nothing",
        (Edit(REDEEMING, "filter(token_family=row.family, application=client)",
              "filter(token_family=row.family)"),),
        ("test_code_of_another_client_is_rejected",),
    ),
    Mutation(
        "T2", "a code goes with its redirect URI",
        (Edit(REDEEMING, "return bool(notes(request).grant.redirect_uri_allowed(redirect_uri))",
              "return True"),),
        ("test_code_with_another_redirect_uri_is_rejected",),
    ),
    Mutation(
        "T3", "a code that comes again ends what it was good for",
        (Edit(REDEEMING, "            _revoke_issued_tokens(code, client)\n", ""),),
        ("test_replayed_code_revokes_its_tokens",),
    ),
    Mutation(
        "T3", "who deletes a code's row redeems it",
        (Edit(REDEEMING, "return bool(by_model.get(Grant._meta.label))", "return True"),),
        (AT_ONCE, "test_losing_request_for_a_code_issues_nothing_and_revokes_the_tokens"),
        by="assert |AssertionError|django.db.utils.IntegrityError",
    ),
    Mutation(
        "T3", "who lost the race ends what was issued",
        (Edit(REDEEMING, "            _revoke_issued_tokens(request.code, request.client)\n", ""),),
        ("test_losing_request_for_a_code_issues_nothing_and_revokes_the_tokens",),
    ),
    Mutation(
        "T3", "a row that is gone meanwhile is no error of ours",
        (Edit(REDEEMING, "return notes(request).grant.code_challenge or None",
              "return super().get_code_challenge(code, request)"),),
        ("test_code_deleted_during_the_request_is_rejected",),
        by=".*DoesNotExist",
    ),
    Mutation(
        "T3", "tokens that are revoked before they are told are no error of ours",
        (Edit("oauth/token_endpoint.py", "except get_access_token_model().DoesNotExist:",
              "except ZeroDivisionError:"),),
        ("test_tokens_revoked_before_the_response_are_no_server_error",),
        by=".*DoesNotExist",
    ),
    Mutation(
        "T3", "codes are remembered by digest",
        (Edit(REDEEMING, "return hashlib.sha256(code.encode()).hexdigest()", "return code[:64]"),),
        ("test_redeemed_codes_are_stored_by_digest_until_they_expire",),
    ),
    Mutation(
        "T3", "codes are not remembered for ever",
        (Edit(REDEEMING, "            delete_old_codes()\n", "            pass\n"),),
        ("test_redeemed_codes_are_stored_by_digest_until_they_expire",),
    ),
    Mutation(
        "T5", "who names no server gets the only one there is",
        (Edit(TARGETS, "sorted(wanted or allowed & known or _only_default_server())",
              "sorted(wanted or allowed & known)"),),
        ("test_token_without_a_requested_resource_is_for_the_only_server",
         "test_resource_is_required_if_there_are_several_servers"),
    ),
    Mutation(
        "T5", "of several servers none is guessed",
        (Edit(TARGETS, "if len(found) != 1:", "if False:"),),
        ("test_resource_is_required_if_there_are_several_servers",),
    ),
    Mutation(
        "T5", "tokens are for servers that there are",
        (Edit(TARGETS, "if not wanted <= known:", "if False:"),),
        ("test_token_request_for_an_unknown_resource_is_an_invalid_target",),
    ),
    Mutation(
        "T6", "what was granted for one server is not for another",
        (Edit(TARGETS, "if allowed and not wanted <= allowed:", "if False:"),),
        ("test_grant_for_one_server_cannot_be_used_for_another",
         "test_grant_for_two_servers_can_be_narrowed_but_not_widened_again"),
    ),
    Mutation(
        "T6", "every resource that is named is judged",
        (Edit(TARGETS, "    found = in_body or request.resource or []",
              "    found = request.resource or []"),),
        ("test_grant_for_one_server_cannot_be_used_for_another",),
    ),
    Mutation(
        "T6", "a grant for a server that is no more is for none",
        (Edit(TARGETS, "if allowed and not allowed & known:", "if False:"),),
        ("test_grant_for_a_removed_server_is_an_invalid_target",),
    ),
    Mutation(
        "T6", "spellings of one name are one",
        (Edit(PROTECTED, '{suffix}{parts.path.rstrip(\'/\')}"', '{suffix}{parts.path}"'),),
        ("test_resource_is_normalized_at_the_token_endpoint",),
    ),
    Mutation(
        "T6", "what is no URI is no error of ours",
        (Edit(PROTECTED, "    except ValueError:", "    except ZeroDivisionError:"),),
        ("test_token_request_for_an_unknown_resource_is_an_invalid_target",),
        by="ValueError",
    ),
    Mutation(
        "T13", "who registered itself has the code grant alone",
        (Edit(VALIDATORS, "and grant_type not in SELF_REGISTERED_GRANTS:", "and False:"),),
        ("test_self_registered_client_can_use_only_the_code_grant",),
    ),
    Mutation(
        "T13", "who registered itself gets codes alone",
        (Edit(VALIDATORS, 'if is_self_registered(client) and response_type != "code":',
              "if False:"),
         Edit("oauth/conf.py", '    "IMPLICIT_GRANT",\n', "")),
        ("test_self_registered_client_cannot_use_the_implicit_grant",),
        by="assert |DeprecationWarning: The OAuth 2.0 implicit grant",
    ),
    Mutation(
        "T13", "a machine has a service user, and a secret",
        (Edit(VALIDATORS, "        if client.client_type != CONFIDENTIAL:\n"
              "            return False\n"
              "        return may_use(client.user, self.set_targets(request, (), scopes))",
              "        return True"),),
        ("test_machine_client_without_service_user_or_secret_gets_no_token",
         "test_machine_client_acts_as_its_service_user"),
    ),
    Mutation(
        "T13", "no token of a machine is nobody's",
        (Edit(VALIDATORS, "            request.user = request.client.user\n",
              "            pass\n"),),
        ("test_machine_client_acts_as_its_service_user",),
    ),
    Mutation(
        "T13", "no secret is not a secret that both sides know",
        (Edit(VALIDATORS, "if not (provided_secret and stored_secret):\n            return False",
              "if (provided_secret or \"\") == stored_secret:\n            return True"),),
        ("test_empty_secret_never_authenticates",),
    ),
    Mutation(
        "T13", "another door is shut to who registered itself",
        (Edit(VALIDATORS,
              "not is_self_registered(request.client) or bool(request.headers.get(OUR_VIEW))",
              "True"),),
        ("test_second_authorization_view_rejects_self_registered_clients",),
    ),
    Mutation(
        "T13", "another door is shut to what is ours",
        (Edit(VALIDATORS, "    return is_for_mcp_servers(client, request.scopes)\n",
              "    return False\n"),),
        ("test_second_authorization_view_rejects_our_scopes",),
    ),
    Mutation(
        "T13", "a blocked client is unknown",
        (Edit("oauth/client_registry.py",
              "if _is_valid_id(client_id) and not _is_blocked(client_id, request):",
              "if _is_valid_id(client_id):"),
         Edit("oauth/client_registry.py", "    if client_profile.blocked is not None:\n",
              "    if False:\n")),
        ("test_blocked_client_is_rejected_at_every_endpoint",),
    ),
    Mutation(
        "T13", "a parameter is not taken for what we know",
        (Edit(REFRESHING, '        row = vars(request).setdefault("refresh_token_instance", None)',
              "        row = request.refresh_token_instance"),),
        ("test_request_parameters_cannot_replace_internal_attributes",),
        by="assert |AttributeError|ValueError",
    ),
    Mutation(
        "T13", "the token endpoint takes no query",
        (Edit("oauth/token_endpoint.py", 'lambda request: bool(request.META.get("QUERY_STRING"))',
              "lambda request: False"),),
        ("test_token_request_with_a_query_is_invalid",),
        by="assert |ValueError",
    ),
)  # fmt: skip
