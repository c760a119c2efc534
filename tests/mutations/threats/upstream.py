"""Mutations that weaken the binding of tokens to upstream accounts."""

from __future__ import annotations

from ..mutation import Edit, Mutation

BINDINGS, VERIFIER = "oauth/upstream_accounts.py", "oauth/verifier.py"

ROWS = (
    Mutation(
        "T22", "a token is good as long as the account elsewhere stands",
        (Edit(VERIFIER,
              "    return upstream_accounts.rejection_reason(user, row.account, row.checked)\n",
              "    return None\n"),),
        ("test_lookup_of_a_token_waits_for_a_due_check",
         "test_token_without_a_binding_is_rejected"),
    ),
    Mutation(
        "T22", "so is a refresh token",
        (Edit("oauth/grants.py",
              "return not ours or may_refresh_family(row.token_family, row.user)", "return True"),),
        ("test_removed_account_cannot_refresh_or_redeem",),
    ),
    Mutation(
        "T22", "so is a code",
        (Edit("oauth/grants.py",
              "return not is_ours or may_redeem_code(code, grant.user)",
              "return True"),),
        ("test_account_removed_before_the_consent_gets_no_token",
         "test_code_is_answered_503_during_an_outage_and_stays_valid"),
    ),
    Mutation(
        "T24", "it is asked for while something is open",
        (Edit(VERIFIER,
              '    upstream_accounts.queue_early_checks(refresh.values("token_family"))\n', ""),),
        ("test_account_of_an_open_stream_is_checked_when_due",),
    ),
    Mutation(
        "T24", "it is asked for before what is known is too old",
        (Edit(BINDINGS,
              "return min(found.max_age / 2, found.max_age - 1.5 * CHECK_INTERVAL_SECONDS)",
              "return found.max_age"),),
        ("test_stream_without_grace_stays_open_while_the_account_exists",),
    ),
    Mutation(
        "T24", "nothing stays open by what is known too long",
        (Edit(BINDINGS, "return rows.filter(~Exists(outdated))", "return rows"),),
        ("test_open_stream_ends_after_the_grace_of_an_outage",),
    ),
    Mutation(
        "T25", "what the project raises is told by its name alone",
        (Edit("oauth/upstream_accounts.py", "type(error).__name__)", "error)"),),
        ("test_exception_of_the_project_is_logged_without_its_message",),
    ),
)  # fmt: skip
