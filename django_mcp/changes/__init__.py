"""
Changes: record what a save changed, and notify the clients that may know of it.

`receivers` connects signal receivers to models. `capture` records saved rows, and
`permission_changes` records whose permissions changed. `change_set` has the changes of which
clients of one server may be notified. `feed` follows the change logs, and passes the changes on:
`broadcaster` notifies sessions, `subscriptions` the clients that are connected to this process.
`permission_rechecks` ends running calls that their caller may no longer make. `api` has the
functions with which a project announces changes.
"""
