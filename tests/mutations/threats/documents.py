"""Mutations that weaken client metadata documents and client keys."""

from __future__ import annotations

from ..mutation import Edit, Mutation

CLIENTS, CIMD, FETCHING = (
    "oauth/client_metadata.py",
    "oauth/client_metadata_documents.py",
    "oauth/client_metadata_documents.py",
)
KEYS, KNOWN, RATES = (
    "oauth/client_authentication.py",
    "oauth/client_registry.py",
    "oauth/registration_limits.py",
)
ASSERTION, CONF = "oauth/client_authentication.py", "oauth/conf.py"
NO_DOCUMENT = ("test_invalid_document_is_an_unknown_client",)
CHANGED = ("test_changed_document_revokes_consent_or_tokens",)
FETCH = "verifiers/fetching.py"
ANYWHERE = "dict.fromkeys(one[4][0] for one in socket.getaddrinfo(host, port, 0, 1))"
KEY = "private_key_jwt"
CLAIMED = ("test_assertion_with_wrong_claims_is_rejected",)
FORGED = ("test_forged_assertion_is_rejected",)

ROWS = (
    Mutation(
        "T14", "one host has a few slots",
        (Edit("oauth/client_metadata_documents.py", "is_free = all(", "is_free = True or all("),),
        ("test_number_of_slots_per_host_is_limited",),
    ),
    Mutation(
        "T14", "addresses are those that everybody can reach",
        (Edit(FETCHING, "dict.fromkeys(_resolve_and_validate(host, port))", ANYWHERE),),
        ("test_document_at_an_internal_address_is_not_fetched",
         "test_internal_address_in_another_notation_is_not_fetched",
         "test_keys_at_an_internal_address_are_not_fetched"),
    ),
    Mutation(
        "T14", "no address beside it is inside: split DNS",
        (Edit(FETCHING, "dict.fromkeys(_resolve_and_validate(host, port))",
              "dict.fromkeys(\n                one[4][0]\n"
              "                for one in socket.getaddrinfo(host, port, 0, 1)\n"
              "                if ipaddress.ip_address(one[4][0]).is_global\n            )"),),
        ("test_document_at_an_internal_address_is_not_fetched",),
    ),
    Mutation(
        "T14", "an address of many is none",
        (Edit(FETCHING, "if not all(map(_is_public_unicast, found)):", "if False:"),),
        ("test_document_at_an_internal_address_is_not_fetched",),
    ),
    Mutation(
        "T14", "a name is looked up once, and not again to connect: rebinding",
        (Edit(FETCHING, "return self._get(parts, address, ends, max_bytes)",
              "return self._get(parts, parts.hostname or address, ends, max_bytes)"),),
        ("test_host_of_a_document_is_looked_up_once",),
    ),
    Mutation(
        "T14", "ports are those of documents",
        (Edit(FETCHING, "if port not in self.ports:", "if False:"),),
        ("test_unusual_document_url_is_an_unknown_client",),
    ),
    Mutation(
        "T14", "URLs are what they seem",
        (Edit(FETCHING, "if not (host and parts.path and NETLOC.fullmatch(parts.netloc)):",
              "if not host:"),
         Edit(FETCHING, 'if dots & set(parts.path.lower().split("/")):', "if False:")),
        ("test_unusual_document_url_is_an_unknown_client",),
    ),
    Mutation(
        "T14", "nothing is redirected",
        (Edit(FETCH, 'raise FetchError(f"the response has status {response.status}")',
              'raise FetchError(response.headers["Location"] or "")'),
         Edit(FETCHING, "raise CIMDError(str(failure)) from failure",
              "return self.retrieve(str(failure), longest)")),
        (*NO_DOCUMENT, "test_redirected_keys_are_rejected"),
    ),
    Mutation(
        "T14", "an error is no document",
        (Edit(FETCH, "if response.status != 200:", "if False:"),),
        NO_DOCUMENT,
    ),
    Mutation(
        "T14", "documents are short",
        (Edit(FETCH, "if len(body) > max_bytes:", "if False:"),),
        (*NO_DOCUMENT, "test_large_key_set_is_rejected"),
    ),
    Mutation(
        "T14", "documents have an end in time",
        (Edit(FETCH, "            stack.enter_context(_shut_down_at(ends, made))\n", ""),),
        ("test_slow_document_times_out", "test_slow_keys_time_out"),
    ),
    Mutation(
        "T14", "documents are sent as JSON",
        (Edit(FETCH, "if not JSON_MEDIA_TYPE.fullmatch(media_type):", "if False:"),),
        NO_DOCUMENT,
    ),
    Mutation(
        "T14", "documents are JSON objects",
        (Edit(FETCH, "    if not isinstance(found, dict):\n", "    if False:\n"),),
        ("test_invalid_keys_reject_the_assertion",),
        by="AttributeError: 'list' object",
    ),
    Mutation(
        "T14", "deep JSON is none",
        (Edit(FETCH, "    except (ValueError, RecursionError):", "    except ValueError:"),),
        ("test_invalid_keys_reject_the_assertion",),
        by="RecursionError",
    ),
    Mutation(
        "T14", "a document is its own client's",
        (Edit(CIMD, 'if document.get("client_id") != client_id:', "if False:"),),
        NO_DOCUMENT,
    ),
    Mutation(
        "T14", "a document has a name, and a redirect URI",
        (Edit(CIMD, "if not uris or not metadata.name:", "if False:"),),
        NO_DOCUMENT,
        by="assert |django.core.exceptions.ValidationError|ValueError",
    ),
    Mutation(
        "T14", "a document has no secret",
        (Edit(CIMD, "if SECRETS & set(document):", "if False:"),),
        NO_DOCUMENT,
    ),
    Mutation(
        "T14", "who failed waits before it is asked again",
        (Edit(CONF, '        "CIMD_MAX_DOCUMENT_SIZE": 5120,\n',
              '        "CIMD_MAX_DOCUMENT_SIZE": 5120,\n'
              '        "CIMD_FAILURE_BACKOFF_SECONDS": 0,\n'),),
        NO_DOCUMENT,
    ),
    Mutation(
        "T14", "the certificate is the host's",
        (Edit(FETCHING, "        context = ssl.create_default_context()\n",
              "        context = ssl.create_default_context()\n"
              "        context.check_hostname = False\n"),),
        ("test_certificate_of_another_host_is_rejected",),
    ),
    Mutation(
        "T14", "bad redirects of a document are left out",
        (Edit(CIMD, 'client_metadata.valid_redirect_uris(listed)',
              'listed'),),
        ("test_bad_redirect_uris_of_a_document_are_ignored",),
    ),
    Mutation(
        "T14", "hosts of documents may be named",
        (Edit(CIMD, "if not validate_host(host, settings.CLIENT_HOSTS):", "if False:"),
         Edit(KNOWN, "return is_fresh and validate_host(host, settings.CLIENT_HOSTS)",
              "return is_fresh")),
        ("test_client_hosts_setting_limits_the_hosts_of_documents",),
    ),
    Mutation(
        "T14", "a host that leaves the list is unknown from then on",
        (Edit(KNOWN, "return is_fresh and validate_host(host, settings.CLIENT_HOSTS)",
              "return is_fresh"),),
        ("test_client_hosts_setting_limits_the_hosts_of_documents",),
    ),
    Mutation(
        "T14", "keys are at hosts that are named",
        (Edit(CLIENTS,
              'if not validate_host(urlsplit(uri).hostname or "", settings.CLIENT_HOSTS):',
              "if False:"),),
        ("test_client_hosts_setting_limits_the_hosts_of_keys",),
    ),
    Mutation(
        "T14", "keys are at https, and at its own port",
        (Edit(CLIENTS, "if not (uri := _link(value)) or urlsplit(uri).port not in (None, 443):",
              "if not (uri := _link(value)):"),),
        ("test_unusual_jwks_uri_is_rejected",),
    ),
    Mutation(
        "T14", "nobody makes us knock at any door",
        (Edit(RATES, "    taken = cache.get_many(slots)\n", "    return True\n"),),
        ("test_fetches_of_unknown_documents_are_rate_limited",),
    ),
    Mutation(
        "T14", "a blocked client stays unknown",
        (Edit(CIMD, "if profile is not None and profile.blocked is not None:", "if False:"),
         Edit(KNOWN, "if _is_valid_id(client_id) and not _is_blocked(client_id, request):",
              "if _is_valid_id(client_id):"),
         Edit(KNOWN, "    if client_profile.blocked is not None:\n", "    if False:\n")),
        ("test_blocked_client_with_a_document_stays_unknown",),
    ),
    Mutation(
        "T14", "no client takes over one of another kind",
        (Edit(CIMD, "        if profile.source != Source.CIMD:\n", "        if False:\n"),),
        ("test_document_does_not_take_over_a_manual_client",),
    ),
    Mutation(
        "T14", "keys are asked for once in a while",
        (Edit(KEYS, 'if not cache.get(f"{cache_key}:asked"):', "if True:"),),
        ("test_unknown_key_id_fetches_the_keys_again_but_not_each_time",),
    ),
    Mutation(
        "T15", "who changes is asked about again",
        (Edit(CIMD, "            _revoke_after_change(profile, metadata)\n",
              "            pass\n"),),
        (*CHANGED, "test_changed_keys_revoke_consent_and_tokens"),
    ),
    Mutation(
        "T15", "consents end with any change",
        (Edit(CIMD, "    consents.update(revoked=now)\n", ""),),
        CHANGED,
    ),
    Mutation(
        "T15", "tokens end with other redirects",
        (Edit(CIMD, "if other_key or other_uris:",
              "if other_key:"),),
        CHANGED,
    ),
    Mutation(
        "T15", "tokens end with other keys",
        (Edit(CIMD, "if other_key or other_uris:",
              "if other_uris:"),),
        (*CHANGED, "test_changed_keys_revoke_consent_and_tokens"),
    ),
    Mutation(
        "T15", "what ends is the one client's",
        (Edit(CIMD, "end_all(application=application)", "end_all()"),),
        ("test_changed_document_keeps_tokens_of_other_clients",),
    ),
    Mutation(
        "T15", "a document that is gone holds for a week",
        (Edit(KNOWN, "is_fresh = client_profile.fetched is not None and client_profile.fetched >="
              " oldest",
              "is_fresh = True"),),
        ("test_missing_document_stays_valid_for_a_week",),
    ),
    Mutation(
        "T15", "a document is looked at before it is too old",
        (Edit(CIMD, "min(seconds, settings.STALE)", "seconds"),),
        ("test_stale_setting_limits_the_age_of_a_document",),
    ),
    Mutation(
        "T15", "without a profile a client is looked at again",
        (Edit(KNOWN, "if found is not None and found.registration_source == Source.CIMD and not"
              " profile(request):", "if False:"),
         Edit(KNOWN, "    if client_profile is None:  # registered by hand, and not used yet\n",
              "    if client_profile is None:\n")),
        ("test_client_without_a_profile_is_fetched_again",),
    ),
    Mutation(
        KEY, "who has a key has no other way",
        (Edit(ASSERTION, "return found is not None and found.auth_method == "
              "client_metadata.AUTH_METHOD_PRIVATE_KEY", "return False"),),
        ("test_client_with_a_key_cannot_authenticate_otherwise",),
    ),
    Mutation(
        KEY, "an assertion is to this server",
        (Edit(ASSERTION, "return None if any(name in ours for name in names) else",
              "return None if True else"),),
        CLAIMED,
    ),
    Mutation(
        KEY, "an assertion is about the client itself",
        (Edit(ASSERTION, "isinstance(client, str) and client and claims.get(\"iss\") == client",
              "isinstance(client, str) and client"),),
        CLAIMED,
    ),
    Mutation(
        KEY, "an assertion ends, and soon",
        (Edit(ASSERTION,
              "if not now - CLOCK_SKEW_SECONDS < ends "
              "<= now + MAX_LIFETIME_SECONDS + CLOCK_SKEW_SECONDS:", "if False:"),),
        CLAIMED,
    ),
    Mutation(
        KEY, "an assertion is of now",
        (Edit(ASSERTION, "    if not (\n        begins <= now + CLOCK_SKEW_SECONDS",
              "    if False and not (\n        begins <= now + CLOCK_SKEW_SECONDS"),),
        CLAIMED,
    ),
    Mutation(
        KEY, "an assertion is used once",
        (Edit(ASSERTION, "    if not _mark_used(assertion):\n", "    if False:\n"),),
        ("test_replayed_assertion_is_rejected",
         "test_assertion_is_rejected_if_the_cache_cannot_detect_replays"),
    ),
    Mutation(
        KEY, "an assertion is signed",
        (Edit(ASSERTION, "    if not is_signed(assertion.text, keys, assertion.algorithm):\n",
              "    if not keys:\n"),),
        (*FORGED, "test_assertion_with_a_wrong_signature_does_not_use_up_its_jti"),
    ),
    Mutation(
        KEY, "a signature uses up no jti before it is right",
        (Edit(ASSERTION, "    if not _mark_used(assertion):", "    if False:"),
         Edit(ASSERTION, "    keys = find_keys(",
              "    if not _mark_used(assertion):\n"
              "        raise AssertionRejected(\"it was used before\")\n"
              "    keys = find_keys(")),
        ("test_assertion_with_a_wrong_signature_does_not_use_up_its_jti",),
    ),
    Mutation(
        KEY, "keys are strong, and are for signatures",
        (Edit("verifiers/jose.py",
              'return None if jwk["kty"] == "RSA" and public.key_size not in RSA_BITS else key',
              "return key"),),
        ("test_weak_keys_and_keys_for_other_uses_are_rejected",),
    ),
)  # fmt: skip
