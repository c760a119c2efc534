"""Mutations that weaken the authorization endpoint and its consent page."""

from __future__ import annotations

from ..mutation import Edit, Mutation

ASKING, AUTHORIZE, CONSENT = (
    "oauth/authorization_request.py",
    "oauth/authorize.py",
    "oauth/authorization_request.py",
)
VALIDATORS = "oauth/validators.py"
PAGE = "oauth/templates/django_mcp_oauth/authorize.html"
ADDED = (
    "    # Grants, PKCE and scopes.\n"  # a place where a hook is put that allows what stock refuses
)

ROWS = (
    Mutation(
        "T1", "redirect URIs are compared, which is django-oauth-toolkit's own",
        (Edit(VALIDATORS, ADDED,
              "    def validate_redirect_uri(self, *args: Any, **kwargs: Any) -> bool:\n"
              "        return True\n\n" + ADDED),),
        ("test_unregistered_redirect_uri_is_never_redirected_to",),
    ),
    Mutation(
        "T1", "who may not hear of an error is not sent to where it says",
        (Edit(AUTHORIZE, "if isinstance(error, FatalClientError) or not details.redirect_uri:",
              "details.redirect_uri = self.request.GET.get(\"redirect_uri\")\n"
              "        if not details.redirect_uri:"),),
        ("test_unregistered_redirect_uri_is_never_redirected_to",),
    ),
    Mutation(
        "T1", "who may not hear of an error is not sent there, known or not",
        (Edit(AUTHORIZE, "if isinstance(error, FatalClientError) or not details.redirect_uri:",
              "details.redirect_uri = self.request.GET.get(\"redirect_uri\")\n"
              "        if not details.redirect_uri:"),
         Edit(AUTHORIZE, "if self.leads_to_unverified_site(uri):", "if False:")),
        ("test_unknown_client_id_never_redirects",),
    ),
    Mutation(
        "T1", "an error leads nobody to the site of a client that registered itself",
        (Edit(AUTHORIZE, "if self.leads_to_unverified_site(uri):", "if False:"),),
        ("test_error_does_not_redirect_to_the_site_of_a_self_registered_client",),
    ),
    Mutation(
        "T1", "the login leads back by the path alone",
        (Edit(AUTHORIZE, 'back = f"{escape_uri_path(self.request.path)}?{query.urlencode()}"',
              'back = self.request.GET.get("next", "")'),),
        ("test_login_returns_only_to_the_authorization_endpoint",),
    ),
    Mutation(
        "T2", "a challenge by hash is there before anybody is asked",
        (Edit(ASKING, "lambda _, credentials: not _is_challenge(credentials),",
              "lambda _, credentials: False,"),
         Edit(VALIDATORS, "if challenge is not None and request.code_challenge_method != S256:",
              "if False:"),
         Edit(VALIDATORS, "if challenge is not None and not CHALLENGE.fullmatch(challenge):",
              "if False:")),
        ("test_request_without_an_s256_challenge_is_invalid",),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T4", "every answer says whose it is",
        (Edit(AUTHORIZE, "super().redirect(with_issuer(redirect_to), application)",
              "super().redirect(redirect_to, application)"),),
        ("test_every_redirect_contains_the_issuer",
         "test_login_required_redirect_contains_the_issuer"),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T4", "no client brings an issuer of its own",
        (Edit(ASKING, 'if pair and _name(pair) != "iss"]', "if pair]"),),
        ("test_iss_in_a_redirect_uri_is_replaced",),
    ),
    Mutation(
        "T4", "no other issuer is told of",
        (Edit("oauth/metadata.py",
              'return authorization_server_metadata() if suffix in ("", "/") else None',
              "return authorization_server_metadata()"),),
        ("test_document_of_another_issuer_is_not_found",),
    ),
    Mutation(
        "T12", "a name is shown as text",
        (Edit(PAGE,
              "<strong class=\"name\"><bdi>{{ client.name|default:nameless }}</bdi></strong> <span",
              "<strong class=\"name\"><bdi>{{ client.name|safe }}</bdi></strong> <span"),),
        ("test_client_name_cannot_inject_html_or_text",),
    ),
    Mutation(
        "T12", "a name is cleaned before it is shown",
        (Edit(CONSENT, 'return ConsentClient(displayable(application.name), source, host)',
              "return ConsentClient(application.name, source, host)"),),
        ("test_client_name_cannot_inject_html_or_text",),
    ),
    Mutation(
        "T12", "nobody vouches for who registered itself",
        (Edit(CONSENT, "if is_registered_by_staff(application) else Source.DCR", ""),
         Edit(CONSENT, "if application.registration_source == Source.CIMD:", "if False:")),
        ("test_self_registered_client_with_a_famous_name_is_unverified",
         "test_whole_host_of_a_client_id_is_shown"),
    ),
    Mutation(
        "T12", "hosts are shown as the name system has them",
        (Edit(CONSENT, "return label if label.isascii() else", "return label if True else"),),
        ("test_homograph_host_is_shown_in_punycode",),
    ),
    Mutation(
        "T16", "a form adds nothing to what the URL says",
        (Edit(ASKING, "    def extract_body(self, request: Any) -> list[Any]:\n"
              "        return []\n", "    pass\n"),),
        ("test_posted_form_cannot_change_the_request",
         "test_request_parameters_in_the_form_are_ignored"),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T16", "scopes are those of the request, not of the form",
        (Edit(AUTHORIZE, '" ".join(authorization.scopes),',
              'self.request.POST.get("scope") or " ".join(authorization.scopes),'),),
        ("test_posted_form_cannot_change_the_request",),
    ),
    Mutation(
        "T16", "what is held counts only if it was shown",
        (Edit(AUTHORIZE, "if shown is None or scope in shown", ""),),
        ("test_scope_granted_elsewhere_after_the_page_was_shown_is_not_included",
         "test_token_deleted_after_the_page_was_shown_does_not_widen_the_grant",
         "test_form_without_the_shown_scopes_grants_the_requested_ones"),
    ),
    Mutation(
        "T16", "scopes of other APIs are not for who registered itself",
        (Edit(VALIDATORS,
              "return known & offered().keys() if is_self_registered(client) else known",
              'return known | {"read"}'),),
        ("test_unknown_and_foreign_scopes_are_ignored",
         "test_request_without_any_known_scope_is_rejected"),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T16", "scopes that nobody knows are left out",
        (Edit(VALIDATORS, "for scope in dict.fromkeys(asked) if scope in known]",
              "for scope in dict.fromkeys(asked)]"),),
        ("test_request_without_any_known_scope_is_rejected",),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T16", "a sibling has no more than the first",
        (Edit("oauth/grants.py",
              "return RefreshTokenUse.ADD_SIBLING, successor.access_token.scope",
              'return RefreshTokenUse.ADD_SIBLING, "mcp mcp:write"'),),
        ("test_second_refresh_within_the_grace_gets_no_wider_scopes",),
    ),
    Mutation(
        "T17", "only whom the project registered as its own is trusted",
        (Edit(AUTHORIZE, "return bool(is_own and skips_page and", "return bool(skips_page and"),),
        ("test_self_registered_client_cannot_skip_the_consent",),
    ),
    Mutation(
        "T17", "what django-oauth-toolkit would not ask is asked",
        (Edit(AUTHORIZE, "        authorization = self.validated_request()\n"
              "        if self.is_trusted(authorization):",
              "        authorization = self.validated_request()\n"
              "        from oauth2_provider.models import get_access_token_model\n"
              "        mine = get_access_token_model().objects.filter(\n"
              "            user=request.user, application=authorization.application\n"
              "        )\n"
              '        if request.GET.get("approval_prompt") == "auto" and mine.exists():\n'
              "            return self.issue_code(authorization)\n"
              "        if self.is_trusted(authorization):"),),
        ("test_consent_is_asked_each_time",
         "test_prompt_none_never_gives_a_code_after_an_earlier_consent"),
        by="assert |AssertionError",
    ),
    Mutation(
        "T17", "silence is no consent",
        (Edit(AUTHORIZE, "        if redirect := self.redirect_without_page(authorization):\n"
              "            return redirect\n", ""),),
        ("test_prompt_none_never_gives_a_code_after_an_earlier_consent",),
    ),
    Mutation(
        "T17", "our page marks its requests",
        (Edit(AUTHORIZE, "        request.META[OUR_VIEW] = True\n", ""),),
        ("test_second_authorization_view_is_told_apart_from_ours",),
    ),
    Mutation(
        "T17", "a second page of django-oauth-toolkit's is told apart",
        (Edit(VALIDATORS,
              "not is_self_registered(request.client) or bool(request.headers.get(OUR_VIEW))",
              "True"),),
        ("test_second_authorization_view_gives_no_code_to_self_registered_clients",),
    ),
    Mutation(
        "T17", "our page does not use what another has kept",
        (Edit(AUTHORIZE, "        return QueryOnlyCore(cls.get_server())",
              "        return super().get_oauthlib_core()"),),
        ("test_our_view_does_not_share_the_core_of_a_second_view",),
        by="assert |.*Grant.DoesNotExist",
    ),
    Mutation(
        "T18", "an answer is the person's own",
        (Edit(AUTHORIZE, "_security_headers, csrf_protect]", "_security_headers, csrf_exempt]"),
         Edit(AUTHORIZE, "import csrf_protect", "import csrf_exempt")),
        ("test_consent_needs_a_csrf_token",
         "test_page_shown_to_one_user_cannot_be_answered_as_another"),
    ),
    Mutation(
        "T19", "no answer is framed",
        (Edit(AUTHORIZE, '    "X-Frame-Options": "DENY",\n', ""),),
        ("test_responses_forbid_frames_and_caching",),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T19", "no answer is framed, as newer browsers are told",
        (Edit(AUTHORIZE, "frame-ancestors 'none'; ", ""),),
        ("test_responses_forbid_frames_and_caching",),
    ),
    Mutation(
        "T19", "errors and redirects are guarded as well",
        (Edit(AUTHORIZE, "        for name, value in PAGE_HEADERS.items():\n",
              "        guarded = PAGE_HEADERS if response.status_code == 200 else {}\n"
              "        for name, value in guarded.items():\n"
              ),),
        ("test_responses_forbid_frames_and_caching",),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T21", "no other origin reads the page",
        (Edit("oauth/urls.py",
              "    closes_connections(limits_body(view.as_view()))\n    for view in (MCPA",
              '    cors("GET", "POST")(closes_connections(view.as_view()))\n'
              "    for view in (MCPA"),),
        ("test_consent_page_has_no_cors_headers",),
    ),
    Mutation(
        "T25", "no log has a code",
        (Edit(AUTHORIZE, "        return self.redirect(uri, authorization.application)",
              "        __import__(\"logging\").getLogger(\"django_mcp\").info(uri)\n"
              "        return self.redirect(uri, authorization.application)"),),
        ("test_log_contains_no_code_state_or_challenge",),
    ),
    Mutation(
        "T27", "no parameter ends a line",
        (Edit(ASKING, "if any(CONTROL.search(text) for name,", "if any(False for name,"),),
        ("test_parameter_with_a_line_end_is_rejected",),
    ),
    Mutation(
        "T27", "a state is given back encoded",
        (Edit(AUTHORIZE, "{separator}{details.urlencoded}",
              "{separator}error={details.error}&state={details.state}"),),
        ("test_state_is_returned_unchanged",),
    ),
    Mutation(
        "T27", "words of scopes are words",
        (Edit(PAGE, "in question.scopes %}<li>{{ words }}",
              "in question.scopes %}<li>{{ words|safe }}"),),
        ("test_description_of_a_scope_is_escaped",),
    ),
)  # fmt: skip
