"""What is taken away from how clients are known by documents, and by keys."""

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
NO_DOCUMENT = ("test_a_document_that_is_none_makes_no_client",)
CHANGED = ("test_who_changes_is_asked_about_again",)
FETCH = "verifiers/fetching.py"
ANYWHERE = "dict.fromkeys(one[4][0] for one in socket.getaddrinfo(host, port, 0, 1))"
KEY = "private_key_jwt"
CLAIMED = ("test_an_assertion_that_says_something_else_is_none",)
FORGED = ("test_a_forged_assertion_proves_nothing",)

ROWS = (
    Mutation(
        "T14", "one host has a few slots",
        (Edit("oauth/client_metadata_documents.py", "is_free = all(", "is_free = True or all("),),
        ("test_one_host_takes_a_few_slots",),
    ),
    Mutation(
        "T14", "addresses are those that everybody can reach",
        (Edit(FETCHING, "dict.fromkeys(_resolve_and_validate(host, port))", ANYWHERE),),
        ("test_no_document_is_fetched_inside", "test_an_address_in_other_words_is_the_same_address",
         "test_keys_at_an_inner_address_are_not_fetched"),
    ),
    Mutation(
        "T14", "no address beside it is inside: split DNS",
        (Edit(FETCHING, "dict.fromkeys(_resolve_and_validate(host, port))",
              "dict.fromkeys(\n                one[4][0]\n"
              "                for one in socket.getaddrinfo(host, port, 0, 1)\n"
              "                if ipaddress.ip_address(one[4][0]).is_global\n            )"),),
        ("test_no_document_is_fetched_inside",),
    ),
    Mutation(
        "T14", "an address of many is none",
        (Edit(FETCHING, "if not all(map(_is_public_unicast, found)):", "if False:"),),
        ("test_no_document_is_fetched_inside",),
    ),
    Mutation(
        "T14", "a name is looked up once, and not again to connect: rebinding",
        (Edit(FETCHING, "return self._get(parts, address, ends, max_bytes)",
              "return self._get(parts, parts.hostname or address, ends, max_bytes)"),),
        ("test_a_name_is_looked_up_once",),
    ),
    Mutation(
        "T14", "ports are those of documents",
        (Edit(FETCHING, "if port not in self.ports:", "if False:"),),
        ("test_an_odd_url_is_an_unknown_client",),
    ),
    Mutation(
        "T14", "URLs are what they seem",
        (Edit(FETCHING, "if not (host and parts.path and NETLOC.fullmatch(parts.netloc)):",
              "if not host:"),
         Edit(FETCHING, 'if dots & set(parts.path.lower().split("/")):', "if False:")),
        ("test_an_odd_url_is_an_unknown_client",),
    ),
    Mutation(
        "T14", "nothing is redirected",
        (Edit(FETCH, 'raise FetchError(f"the response has status {response.status}")',
              'raise FetchError(response.headers["Location"] or "")'),
         Edit(FETCHING, "raise CIMDError(str(failure)) from failure",
              "return self.retrieve(str(failure), longest)")),
        (*NO_DOCUMENT, "test_keys_that_are_redirected_are_none"),
    ),
    Mutation(
        "T14", "an error is no document",
        (Edit(FETCH, "if response.status != 200:", "if False:"),),
        NO_DOCUMENT,
    ),
    Mutation(
        "T14", "documents are short",
        (Edit(FETCH, "if len(body) > max_bytes:", "if False:"),),
        (*NO_DOCUMENT, "test_keys_that_are_long_are_none"),
    ),
    Mutation(
        "T14", "documents have an end in time",
        (Edit(FETCH, "            stack.enter_context(_shut_down_at(ends, made))\n", ""),),
        ("test_what_is_slow_is_given_up_in_time", "test_slow_keys_are_given_up_in_time"),
    ),
    Mutation(
        "T14", "documents are sent as JSON",
        (Edit(FETCH, "if not JSON.fullmatch(media_type):", "if False:"),),
        NO_DOCUMENT,
    ),
    Mutation(
        "T14", "documents are JSON objects",
        (Edit(FETCH, "    if not isinstance(found, dict):\n", "    if False:\n"),),
        ("test_keys_that_are_none_let_nobody_in",),
        by="AttributeError: 'list' object",
    ),
    Mutation(
        "T14", "deep JSON is none",
        (Edit(FETCH, "    except (ValueError, RecursionError):", "    except ValueError:"),),
        ("test_keys_that_are_none_let_nobody_in",),
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
        ("test_a_certificate_of_another_name_is_none",),
    ),
    Mutation(
        "T14", "bad redirects of a document are left out",
        (Edit(CIMD, 'client_metadata.valid_redirect_uris(listed)',
              'listed'),),
        ("test_bad_redirects_of_a_document_are_left_out",),
    ),
    Mutation(
        "T14", "hosts of documents may be named",
        (Edit(CIMD, "if not validate_host(host, settings.CLIENT_HOSTS):", "if False:"),
         Edit(KNOWN, "return is_fresh and validate_host(host, settings.CLIENT_HOSTS)",
              "return is_fresh")),
        ("test_only_hosts_that_are_named_have_documents",),
    ),
    Mutation(
        "T14", "a host that leaves the list is unknown from then on",
        (Edit(KNOWN, "return is_fresh and validate_host(host, settings.CLIENT_HOSTS)",
              "return is_fresh"),),
        ("test_only_hosts_that_are_named_have_documents",),
    ),
    Mutation(
        "T14", "keys are at hosts that are named",
        (Edit(CLIENTS,
              'if not validate_host(urlsplit(found).hostname or "", settings.CLIENT_HOSTS):',
              "if False:"),),
        ("test_keys_are_at_hosts_that_are_named",),
    ),
    Mutation(
        "T14", "keys are at https, and at its own port",
        (Edit(CLIENTS, "if not (found := _link(value)) or urlsplit(found).port not in (None, 443):",
              "if not (found := _link(value)):"),),
        ("test_an_odd_place_for_keys_is_none",),
    ),
    Mutation(
        "T14", "nobody makes us knock at any door",
        (Edit(RATES, "    taken = cache.get_many(slots)\n", "    return True\n"),),
        ("test_nobody_makes_us_knock_at_any_door",),
    ),
    Mutation(
        "T14", "a blocked client stays unknown",
        (Edit(CIMD, "if known is not None and known.blocked is not None:", "if False:"),
         Edit(KNOWN, "if _is_valid_id(client_id) and not _is_blocked(client_id, request):",
              "if _is_valid_id(client_id):"),
         Edit(KNOWN, "    if found.blocked is not None:\n", "    if False:\n")),
        ("test_a_blocked_client_stays_unknown",),
    ),
    Mutation(
        "T14", "no client takes over one of another kind",
        (Edit(CIMD, "        if known.source != Source.CIMD:\n", "        if False:\n"),),
        ("test_a_client_by_its_document_does_not_take_over_one_of_another_kind",),
    ),
    Mutation(
        "T14", "keys are asked for once in a while",
        (Edit(KEYS, 'if not cache.get(f"{cache_key}:asked"):', "if True:"),),
        ("test_a_new_key_is_asked_for_but_not_at_every_wish",),
    ),
    Mutation(
        "T15", "who changes is asked about again",
        (Edit(CIMD, "            _revoke_after_change(known, metadata)\n", "            pass\n"),),
        (*CHANGED, "test_other_keys_end_the_tokens"),
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
        (*CHANGED, "test_other_keys_end_the_tokens"),
    ),
    Mutation(
        "T15", "what ends is the one client's",
        (Edit(CIMD, "end_all(application=application)", "end_all()"),),
        ("test_others_keep_what_they_have",),
    ),
    Mutation(
        "T15", "a document that is gone holds for a week",
        (Edit(KNOWN, "is_fresh = found.fetched is not None and found.fetched >= oldest",
              "is_fresh = True"),),
        ("test_a_document_that_is_gone_holds_for_a_week",),
    ),
    Mutation(
        "T15", "a document is looked at before it is too old",
        (Edit(CIMD, "min(seconds, settings.STALE)", "seconds"),),
        ("test_a_document_is_looked_at_before_it_is_too_old",),
    ),
    Mutation(
        "T15", "without a profile a client is looked at again",
        (Edit(KNOWN, "if found is not None and found.registration_source == Source.CIMD and not"
              " profile(request):", "if False:"),
         Edit(KNOWN, "    if found is None:  # registered by hand, and not used yet\n",
              "    if found is None:\n")),
        ("test_a_client_without_a_profile_is_looked_at_again",),
    ),
    Mutation(
        KEY, "who has a key has no other way",
        (Edit(ASSERTION, "return found is not None and found.auth_method == client_metadata.KEY",
              "return False"),),
        ("test_who_has_a_key_has_no_other_way",),
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
        (Edit(ASSERTION, "    if not _mark_used(found):\n", "    if False:\n"),),
        ("test_an_assertion_is_used_once", "test_without_a_cache_that_keeps_nothing_is_proven"),
    ),
    Mutation(
        KEY, "an assertion is signed",
        (Edit(ASSERTION, "    if not is_signed(found.text, keys, found.algorithm):\n",
              "    if not keys:\n"),),
        (*FORGED, "test_a_wrong_signature_uses_up_no_jti"),
    ),
    Mutation(
        KEY, "a signature uses up no jti before it is right",
        (Edit(ASSERTION, "    if not _mark_used(found):", "    if False:"),
         Edit(ASSERTION, "    keys = find_keys(",
              "    if not _mark_used(found):\n"
              "        raise AssertionRejected(\"it was used before\")\n"
              "    keys = find_keys(")),
        ("test_a_wrong_signature_uses_up_no_jti",),
    ),
    Mutation(
        KEY, "keys are strong, and are for signatures",
        (Edit("verifiers/jose.py",
              'return None if jwk["kty"] == "RSA" and public.key_size not in RSA_BITS else key',
              "return key"),),
        ("test_weak_keys_and_keys_for_other_things_are_none",),
    ),
)  # fmt: skip
