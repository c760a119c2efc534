from django_mcp.protocol.revisions import REVISIONS, encode_notification

from .. import corpus

FIRST, SECOND, THIRD, FOURTH, LATEST = REVISIONS.values()


def test_progress_has_words_where_it_can():
    params = {"progressToken": 1, "progress": 2, "message": "m", "_meta": corpus.META}
    told = [
        encode_notification(revision, "notifications/progress", params)["params"].keys()
        for revision in REVISIONS.values()
    ]
    bare = {"progressToken", "progress"}
    full = bare | {"message", "_meta"}
    assert told == [bare, bare | {"message"}, bare | {"message"}, full, full]


def test_subscriptions_are_named_only_where_they_are():
    message = encode_notification(FOURTH, "notifications/tools/list_changed", corpus.SUBSCRIBED)
    assert message == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    message = encode_notification(LATEST, "notifications/tools/list_changed", corpus.SUBSCRIBED)
    assert message["params"] == corpus.SUBSCRIBED
