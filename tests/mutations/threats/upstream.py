"""What is taken away from the binding of tokens to accounts elsewhere."""

from __future__ import annotations

from ..mutation import Edit, Mutation

BINDINGS, VERIFIER = "oauth/upstream_accounts.py", "oauth/verifier.py"

ROWS = (
    Mutation(
        "T22", "a token is good as long as the account elsewhere stands",
        (Edit(VERIFIER,
              "    return upstream_accounts.rejection_reason(user, row.account, row.checked)\n",
              "    return None\n"),),
        ("test_a_token_that_is_used_waits_until_it_is_asked_whether_the_account_stands",
         "test_a_token_of_which_nobody_knows_how_its_user_signed_in_is_refused"),
    ),
    Mutation(
        "T22", "so is a refresh token",
        (Edit("oauth/refresh_tokens.py",
              "return not ours or may_refresh_family(row.token_family, row.user)", "return True"),),
        ("test_an_account_that_is_gone_has_no_code_and_no_refresh",),
    ),
    Mutation(
        "T22", "so is a code",
        (Edit("oauth/authorization_codes.py",
              "return not is_ours or may_redeem_code(code, grant.user)",
              "return True"),),
        ("test_a_code_is_no_way_around", "test_a_code_waits_for_who_can_tell"),
    ),
    Mutation(
        "T24", "it is asked for while something is open",
        (Edit(VERIFIER,
              '    upstream_accounts.queue_early_checks(refresh.values("token_family"))\n', ""),),
        ("test_for_what_is_open_it_is_asked_in_time",),
    ),
    Mutation(
        "T24", "it is asked for before what is known is too old",
        (Edit(BINDINGS,
              "return min(found.max_age / 2, found.max_age - 1.5 * CHECK_INTERVAL_SECONDS)",
              "return found.max_age"),),
        ("test_without_a_grace_what_is_open_goes_on_as_long_as_the_account_stands",),
    ),
    Mutation(
        "T24", "nothing stays open by what is known too long",
        (Edit(BINDINGS, "return rows.filter(~Exists(outdated))", "return rows"),),
        ("test_what_is_open_does_not_go_on_where_nobody_can_tell",),
    ),
    Mutation(
        "T25", "what the project raises is told by its name alone",
        (Edit("oauth/upstream_accounts.py", "type(error).__name__)", "error)"),),
        ("test_what_the_project_raises_is_logged_by_its_name_alone",),
    ),
)  # fmt: skip
