"""Notifications as each revision encodes them."""

from django_mcp.protocol.revisions import REVISIONS, encode_notification

from .. import corpus

FIRST, SECOND, THIRD, FOURTH, LATEST = REVISIONS.values()


def test_progress_message_is_sent_where_the_revision_has_it():
    params = {"progressToken": 1, "progress": 2, "message": "m", "_meta": corpus.META}
    told = [
        encode_notification(revision, "notifications/progress", params)["params"].keys()
        for revision in REVISIONS.values()
    ]
    bare = {"progressToken", "progress"}
    full = bare | {"message", "_meta"}
    assert told == [bare, bare | {"message"}, bare | {"message"}, full, full]


def test_subscription_id_is_sent_in_the_latest_revision_only():
    message = encode_notification(FOURTH, "notifications/tools/list_changed", corpus.SUBSCRIBED)
    assert message == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    message = encode_notification(LATEST, "notifications/tools/list_changed", corpus.SUBSCRIBED)
    assert message["params"] == corpus.SUBSCRIBED
