"""Mutations that weaken the registration of OAuth clients."""

from __future__ import annotations

from ..mutation import Edit, Mutation

REGISTER, RATES, REDIRECTS = (
    "oauth/register.py",
    "oauth/registration_limits.py",
    "oauth/client_metadata.py",
)
NETWORKS = "auth/principal.py"
CLIENTS, FETCHING, UNUSED = (
    "oauth/client_metadata.py",
    "oauth/client_metadata_documents.py",
    "oauth/registration_limits.py",
)
URLS, CONF = "oauth/urls.py", "oauth/conf.py"
BAD_URI = ("test_registration_with_a_bad_redirect_uri_is_rejected",)

ROWS = (
    Mutation(
        "T10", "of one address a few register",
        (Edit(REGISTER, "if seconds := registration_limits.wait_to_register(address_digest):",
              "if seconds := 0:"),),
        ("test_registrations_per_address_are_limited",
         "test_forwarding_headers_do_not_change_the_limited_address"),
        by="assert |AssertionError",
    ),
    Mutation(
        "T10", "who come at once come one after the other",
        (Edit(REGISTER, "    with registration_limits.registration_lock():\n", "    if True:\n"),),
        ("test_concurrent_registrations_of_one_address_are_limited",
         "test_concurrent_registrations_do_not_exceed_the_total_limit"),
    ),
    Mutation(
        "T10", "no header says whence a request comes",
        (Edit(REGISTER, 'registration_limits.address_digest(request.META.get("REMOTE_ADDR") or "")',
              'registration_limits.address_digest('
              'request.headers.get("X-Forwarded-For", "10.1.1.1"))'),),
        ("test_forwarding_headers_do_not_change_the_limited_address",),
    ),
    Mutation(
        "T10", "IPv6 addresses of one subnet share a digest",
        (Edit(NETWORKS, "SUBNET_BITS, SITE_BITS = 64, 48", "SUBNET_BITS, SITE_BITS = 128, 48"),),
        ("test_ipv6_addresses_of_one_subnet_share_a_digest",),
    ),
    Mutation(
        "T10", "IPv6 is limited by site too",
        (Edit(RATES, "if site != subnet else []", "if False else []"),),
        ("test_registrations_from_ipv6_are_limited_by_subnet_and_by_site",
         "test_documents_for_ipv6_are_limited_by_subnet_and_by_site"),
    ),
    Mutation(
        "T10", "the digest of an address is keyed",
        (Edit(NETWORKS, "    return made.hexdigest()[:HALF_DIGEST_LENGTH]",
              "    from hashlib import sha256\n"
              "    return sha256(_network(remote, ipv6_bits).encode()).hexdigest()[:32]"),),
        ("test_addresses_are_stored_as_keyed_digests",),
    ),
    Mutation(
        "T10", "wrong secrets are compared a few times",
        (Edit("oauth/client_authentication.py", "        raise TooManyAttempts\n",
              "        pass\n"),),
        ("test_comparisons_of_wrong_secrets_are_limited_per_network",),
    ),
    Mutation(
        "T10", "long bodies are not read",
        (Edit("runtime/view_limits.py", "if len(body) > MAX_BYTES:", "if False:"),),
        ("test_long_body_is_rejected_before_it_is_read",),
    ),
    Mutation(
        "T10", "the same again is the same client",
        (Edit(REGISTER, "if known := _reusable_client(metadata, address_digest):",
              "if known := None:"),),
        ("test_repeated_registration_is_one_row_and_not_limited",),
    ),
    Mutation(
        "T10", "nothing is hashed that nobody is told",
        (Edit(REGISTER, "hash_client_secret=False,", "hash_client_secret=True,"),),
        ("test_public_client_gets_a_random_secret_without_hashing",),
    ),
    Mutation(
        "T10", "there are no more than so many that nobody uses",
        (Edit(UNUSED, "return not _is_full() or", "return True or"),),
        ("test_full_table_evicts_the_oldest_client_of_the_busiest_network",),
    ),
    Mutation(
        "T10", "the unused are forgotten after their time",
        (Edit(UNUSED, "    delete_unused(unused_cutoff())\n", ""),),
        ("test_registration_deletes_clients_unused_for_a_day",),
    ),
    Mutation(
        "T10", "who is not old is not forgotten",
        (Edit(UNUSED, "        created__lt=before,\n", ""),),
        ("test_mcp_clear_clients_deletes_clients_unused_for_a_day",),
    ),
    Mutation(
        "T10", "who holds a code or a token is not forgotten",
        (Edit(UNUSED, "        clients = _without_rows_in(clients, model._default_manager.all())\n",
              "        pass\n"),),
        ("test_client_with_code_token_consent_or_block_is_not_deleted",),
    ),
    Mutation(
        "T10", "who was authorized, used or blocked is not forgotten",
        (Edit(UNUSED, "        last_authorized=None,\n        last_used=None,\n"
              "        blocked=None,\n", ""),),
        ("test_client_with_code_token_consent_or_block_is_not_deleted",),
    ),
    Mutation(
        "T10", "who was authorized once is not kept for ever",
        (Edit(UNUSED, "    _delete_idle_occasionally()\n", ""),),
        ("test_registration_deletes_clients_unused_for_90_days",),
    ),
    Mutation(
        "T10", "whose token is good is not forgotten, however long it was not used",
        (Edit(UNUSED, "        clients = _without_rows_in(clients, rows)\n", "        pass\n"),),
        ("test_client_with_a_valid_token_is_not_deleted",),
    ),
    Mutation(
        "T11", "http is for this very machine",
        (Edit(REDIRECTS, "if NETLOC.fullmatch(parts.netloc) and parts.hostname in LOOPBACK:",
              "if NETLOC.fullmatch(parts.netloc):"),),
        (*BAD_URI, "test_script_schemes_are_rejected_whatever_the_settings_say"),
    ),
    Mutation(
        "T11", "every character is a URI's",
        (Edit(REDIRECTS, "if not URI.fullmatch(uri):", "if False:"),),
        (*BAD_URI, "test_accepted_redirect_uri_is_a_single_printable_uri"),
        by="assert |AssertionError|hypothesis|ExceptionGroup",
    ),
    Mutation(
        "T11", "a URI names a host, and nobody's password",
        (Edit(REDIRECTS, "    if not NETLOC.fullmatch(parts.netloc):\n", "    if False:\n"),),
        BAD_URI,
    ),
    Mutation(
        "T11", "no address is hidden",
        (Edit(REDIRECTS, 'if _is_invalid_address(parts.hostname or "") else None',
              "if False else None"),),
        BAD_URI,
    ),
    Mutation(
        "T11", "only schemes that the project names",
        (Edit(REDIRECTS, "if parts.scheme not in {name.lower() for name in "
              "settings.REDIRECT_SCHEMES} - BROWSER_SCHEMES:", "if not parts.scheme:"),),
        ("test_custom_scheme_must_be_in_both_settings",),
    ),
    Mutation(
        "T11", "no setting lets a script in",
        (Edit(REDIRECTS, " - BROWSER_SCHEMES:", ":"),),
        ("test_script_schemes_are_rejected_whatever_the_settings_say",),
    ),
    Mutation(
        "T11", "redirect URIs are few",
        (Edit(REGISTER, "or not 0 < len(uris) <= client_metadata.MAX_REDIRECT_URIS:",
              "or not uris:"),),
        ("test_redirect_uris_must_be_a_list_of_at_most_ten",),
    ),
    Mutation(
        "T11", "metadata is short",
        (Edit(REGISTER, "    body = request.read(MAX_METADATA_BYTES + 1)\n"
              "    if len(body) > MAX_METADATA_BYTES:",
              "    body = request.read()\n    if False:"),),
        ("test_large_registration_is_rejected",),
    ),
    Mutation(
        "T12", "the site vouches for clients of its staff alone",
        (Edit("oauth/client_registry.py", "return bool(owner.is_active and",
              "return bool(True or"),),
        ("test_client_of_staff_with_the_add_permission_is_verified",),
    ),
    Mutation(
        "T12", "a name is one short printable line",
        (Edit(CLIENTS, "    return printable(value, MAX_CLIENT_NAME_LENGTH)",
              "    return value[:MAX_CLIENT_NAME_LENGTH]"),),
        ("test_client_name_is_stored_as_one_short_printable_line",),
        by="assert |AssertionError|UnicodeEncodeError|ValueError",
    ),
    Mutation(
        "T12", "links are safe to follow, or not kept",
        (Edit(CLIENTS, "if is_https and not redirect_uri_problem(value) else", "if True else"),),
        ("test_unsafe_links_of_a_client_are_not_stored",),
    ),
    Mutation(
        "T12", "the host of a document is in ASCII",
        (Edit(FETCHING, "if len(url) > MAX_URL_LENGTH or not URL.fullmatch(url):",
              "if len(url) > MAX_URL_LENGTH:"),
         Edit(FETCHING, "if not (host and parts.path and NETLOC.fullmatch(parts.netloc)):",
              "if not (host and parts.path):")),
        ("test_document_url_must_have_an_ascii_host",),
    ),
    Mutation(
        "T13", "a registration asks for the code grant",
        (Edit(CLIENTS, "    _check_flow(document)\n", ""),),
        ("test_registered_client_gets_only_the_code_grant",),
    ),
    Mutation(
        "T13", "a registration gives the code grant alone",
        (Edit(REGISTER, "authorization_grant_type=model.GRANT_AUTHORIZATION_CODE,",
              "authorization_grant_type=model.GRANT_CLIENT_CREDENTIALS,"),
         Edit(REGISTER, "user=None,",
              "user=__import__(\"django.contrib.auth\").contrib.auth.get_user_model().objects"
              ".create_user(generate_client_secret()[:20]),"),
         Edit("oauth/validators.py",
              "and grant_type not in SELF_REGISTERED_GRANTS:", "and False:")),
        ("test_registered_client_gets_only_the_code_grant",),
    ),
    Mutation(
        "T13", "nothing changes a registration: django-oauth-toolkit's own view does",
        (Edit(URLS, "urlpatterns: list[Any] = [\n",
              "from oauth2_provider.views import DynamicClientRegistrationManagementView\n\n"
              "urlpatterns: list[Any] = [\n"
              '    path("oauth/register/<str:client_id>",'
              " DynamicClientRegistrationManagementView.as_view()),\n"),
         Edit(CONF, '"DCR_ENABLED": False,', '"DCR_ENABLED": True,')),
        ("test_registration_cannot_be_read_or_changed",),
    ),
    Mutation(
        "T18", "a session cookie makes no owner",
        (Edit(REGISTER, "partial(_register_locked, metadata, address_digest)",
              "partial(_register_locked, metadata, address_digest, request.user)"),
         Edit(REGISTER, "def _register_locked(metadata: ClientMetadata, address_digest: str)",
              "def _register_locked(metadata: ClientMetadata, address_digest: str, user: Any)"),
         Edit(REGISTER, "_registration_response(metadata, *_register(metadata, address_digest))",
              "_registration_response(metadata, *_register(metadata, address_digest, user))"),
         Edit(REGISTER, "def _register(metadata: ClientMetadata, address_digest: str)",
              "def _register(metadata: ClientMetadata, address_digest: str, user: Any)"),
         Edit(REGISTER, "user=None,", "user=user if user.is_authenticated else None,")),
        ("test_registration_with_a_session_cookie_has_no_owner",),
    ),
)  # fmt: skip
