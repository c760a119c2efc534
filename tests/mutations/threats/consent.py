"""What is taken away from the authorization endpoint and its page."""

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
        ("test_nobody_is_sent_where_no_client_was_registered",),
    ),
    Mutation(
        "T1", "who may not hear of an error is not sent to where it says",
        (Edit(AUTHORIZE, "if isinstance(error, FatalClientError) or not details.redirect_uri:",
              "details.redirect_uri = self.request.GET.get(\"redirect_uri\")\n"
              "        if not details.redirect_uri:"),),
        ("test_nobody_is_sent_where_no_client_was_registered",),
    ),
    Mutation(
        "T1", "who may not hear of an error is not sent there, known or not",
        (Edit(AUTHORIZE, "if isinstance(error, FatalClientError) or not details.redirect_uri:",
              "details.redirect_uri = self.request.GET.get(\"redirect_uri\")\n"
              "        if not details.redirect_uri:"),
         Edit(AUTHORIZE, "if self.leads_to_unverified_site(uri):", "if False:")),
        ("test_nobody_is_sent_anywhere_by_a_client_that_is_none",),
    ),
    Mutation(
        "T1", "an error leads nobody to the site of a client that registered itself",
        (Edit(AUTHORIZE, "if self.leads_to_unverified_site(uri):", "if False:"),),
        ("test_an_error_is_no_way_to_a_strangers_site",),
    ),
    Mutation(
        "T1", "the login leads back by the path alone",
        (Edit(AUTHORIZE, 'back = f"{escape_uri_path(self.request.path)}?{query.urlencode()}"',
              'back = self.request.GET.get("next", "")'),),
        ("test_the_login_is_not_told_to_go_elsewhere",),
    ),
    Mutation(
        "T2", "a challenge by hash is there before anybody is asked",
        (Edit(ASKING, "lambda _, credentials: not _is_challenge(credentials),",
              "lambda _, credentials: False,"),
         Edit(VALIDATORS, "if challenge is not None and request.code_challenge_method != S256:",
              "if False:"),
         Edit(VALIDATORS, "if challenge is not None and not CHALLENGE.fullmatch(challenge):",
              "if False:")),
        ("test_nobody_is_asked_without_a_challenge_by_hash",),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T4", "every answer says whose it is",
        (Edit(AUTHORIZE, "super().redirect(with_issuer(redirect_to), application)",
              "super().redirect(redirect_to, application)"),),
        ("test_every_answer_says_whose_it_is", "test_an_anonymous_answer_says_whose_it_is"),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T4", "no client brings an issuer of its own",
        (Edit(ASKING, 'if pair and _name(pair) != "iss"]', "if pair]"),),
        ("test_a_client_cannot_bring_an_issuer_of_its_own",),
    ),
    Mutation(
        "T4", "no other issuer is told of",
        (Edit("oauth/metadata.py",
              'return authorization_server_metadata() if suffix in ("", "/") else None',
              "return authorization_server_metadata()"),),
        ("test_no_other_issuer_is_told_of",),
    ),
    Mutation(
        "T12", "a name is shown as text",
        (Edit(PAGE,
              "<strong class=\"name\"><bdi>{{ client.name|default:nameless }}</bdi></strong> <span",
              "<strong class=\"name\"><bdi>{{ client.name|safe }}</bdi></strong> <span"),),
        ("test_a_name_says_nothing_but_itself",),
    ),
    Mutation(
        "T12", "a name is cleaned before it is shown",
        (Edit(CONSENT, 'return ConsentClient(displayable(application.name), source, host)',
              "return ConsentClient(application.name, source, host)"),),
        ("test_a_name_says_nothing_but_itself",),
    ),
    Mutation(
        "T12", "nobody vouches for who registered itself",
        (Edit(CONSENT, "if is_registered_by_staff(application) else Source.DCR", ""),
         Edit(CONSENT, "if application.registration_source == Source.CIMD:", "if False:")),
        ("test_a_famous_name_is_unverified", "test_an_ascii_prefix_of_a_client_id_is_no_host"),
    ),
    Mutation(
        "T12", "hosts are shown as the name system has them",
        (Edit(CONSENT, "return label if label.isascii() else", "return label if True else"),),
        ("test_a_host_that_looks_like_another_does_not",),
    ),
    Mutation(
        "T16", "a form adds nothing to what the URL says",
        (Edit(ASKING, "    def extract_body(self, request: Any) -> list[Any]:\n"
              "        return []\n", "    pass\n"),),
        ("test_a_form_adds_nothing_to_what_was_shown", "test_a_form_is_no_request"),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T16", "scopes are those of the request, not of the form",
        (Edit(AUTHORIZE, 'self.request, " ".join(found.scopes), dict(found.credentials)',
              'self.request, self.request.POST.get("scope") or " ".join(found.scopes),'
              " dict(found.credentials)"),),
        ("test_a_form_adds_nothing_to_what_was_shown",),
    ),
    Mutation(
        "T16", "what is held counts only if it was shown",
        (Edit(AUTHORIZE, "if shown is None or scope in shown", ""),),
        ("test_what_came_after_the_page_is_not_granted_by_it",
         "test_what_goes_after_the_page_makes_nothing_new_of_what_was_not",
         "test_a_form_that_does_not_say_what_was_shown_grants_what_was_asked"),
    ),
    Mutation(
        "T16", "scopes of other APIs are not for who registered itself",
        (Edit(VALIDATORS,
              "return known & offered().keys() if is_self_registered(client) else known",
              'return known | {"read"}'),),
        ("test_scopes_that_are_not_for_it_are_left_out",
         "test_something_must_be_left_of_what_was_asked_for"),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T16", "scopes that nobody knows are left out",
        (Edit(VALIDATORS, "for scope in dict.fromkeys(asked) if scope in known]",
              "for scope in dict.fromkeys(asked)]"),),
        ("test_something_must_be_left_of_what_was_asked_for",),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T16", "a sibling has no more than the first",
        (Edit("oauth/refresh_tokens.py",
              "return RefreshTokenUse.ADD_SIBLING, successor.access_token.scope",
              'return RefreshTokenUse.ADD_SIBLING, "mcp mcp:write"'),),
        ("test_a_sibling_has_no_more_than_the_first",),
    ),
    Mutation(
        "T17", "only whom the project registered as its own is trusted",
        (Edit(AUTHORIZE, "return bool(is_own and skips_page and", "return bool(skips_page and"),),
        ("test_who_came_by_itself_is_never_trusted",),
    ),
    Mutation(
        "T17", "what django-oauth-toolkit would not ask is asked",
        (Edit(AUTHORIZE, "        found = self.validated()\n        if self.is_trusted(found):",
              "        found = self.validated()\n"
              "        from oauth2_provider.models import get_access_token_model\n"
              "        mine = get_access_token_model().objects.filter(\n"
              "            user=request.user, application=found.application\n"
              "        )\n"
              '        if request.GET.get("approval_prompt") == "auto" and mine.exists():\n'
              "            return self.issue_code(found)\n"
              "        if self.is_trusted(found):"),),
        ("test_consent_is_asked_each_time", "test_silence_is_no_consent"),
        by="assert |AssertionError",
    ),
    Mutation(
        "T17", "silence is no consent",
        (Edit(AUTHORIZE, "        if away := self.redirect_without_page(found):\n"
              "            return away\n", ""),),
        ("test_silence_is_no_consent",),
    ),
    Mutation(
        "T17", "our page marks its requests",
        (Edit(AUTHORIZE, "        request.META[OUR_VIEW] = True\n", ""),),
        ("test_a_second_door_does_not_pass_for_ours",),
    ),
    Mutation(
        "T17", "a second page of django-oauth-toolkit's is told apart",
        (Edit(VALIDATORS,
              "not is_self_registered(request.client) or bool(request.headers.get(OUR_VIEW))",
              "True"),),
        ("test_a_second_page_gives_no_code_to_who_registered_itself",),
    ),
    Mutation(
        "T17", "our page does not use what another has kept",
        (Edit(AUTHORIZE, "        return QueryOnlyCore(cls.get_server())",
              "        return super().get_oauthlib_core()"),),
        ("test_our_view_does_not_use_what_the_second_has_kept",),
        by="assert |.*Grant.DoesNotExist",
    ),
    Mutation(
        "T18", "an answer is the person's own",
        (Edit(AUTHORIZE, "_security_headers, csrf_protect]", "_security_headers, csrf_exempt]"),
         Edit(AUTHORIZE, "import csrf_protect", "import csrf_exempt")),
        ("test_an_answer_is_the_persons_own",
         "test_a_page_of_one_person_is_not_answered_by_another"),
    ),
    Mutation(
        "T19", "no answer is framed",
        (Edit(AUTHORIZE, '    "X-Frame-Options": "DENY",\n', ""),),
        ("test_no_answer_is_framed_or_kept",),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T19", "no answer is framed, as newer browsers are told",
        (Edit(AUTHORIZE, "frame-ancestors 'none'; ", ""),),
        ("test_no_answer_is_framed_or_kept",),
    ),
    Mutation(
        "T19", "errors and redirects are guarded as well",
        (Edit(AUTHORIZE, "        for name, value in HEADERS.items():\n",
              "        for name, value in HEADERS.items() if response.status_code == 200 else ():\n"
              ),),
        ("test_no_answer_is_framed_or_kept",),
        by="assert |AssertionError|KeyError",
    ),
    Mutation(
        "T21", "no other origin reads the page",
        (Edit("oauth/urls.py",
              "    closes_connections(limits_body(view.as_view()))\n    for view in (MCPA",
              '    cors("GET", "POST")(closes_connections(view.as_view()))\n'
              "    for view in (MCPA"),),
        ("test_no_other_origin_may_read_it",),
    ),
    Mutation(
        "T25", "no log has a code",
        (Edit(AUTHORIZE, "        return self.redirect(uri, found.application)",
              "        __import__(\"logging\").getLogger(\"django_mcp\").info(uri)\n"
              "        return self.redirect(uri, found.application)"),),
        ("test_no_log_has_a_code",),
    ),
    Mutation(
        "T27", "no parameter ends a line",
        (Edit(ASKING, "if any(CONTROL.search(text) for name,", "if any(False for name,"),),
        ("test_no_parameter_ends_a_line",),
    ),
    Mutation(
        "T27", "a state is given back encoded",
        (Edit(AUTHORIZE, "{separator}{details.urlencoded}",
              "{separator}error={details.error}&state={details.state}"),),
        ("test_a_state_is_given_back_as_it_came",),
    ),
    Mutation(
        "T27", "words of scopes are words",
        (Edit(PAGE, "in question.scopes %}<li>{{ words }}",
              "in question.scopes %}<li>{{ words|safe }}"),),
        ("test_words_of_scopes_are_words",),
    ),
)  # fmt: skip
