"""
Changes: record what a save changed, and notify the clients that may know of it.

- ``receivers``: connect signal receivers to models
- ``capture``: record saved rows
- ``permission_changes``: record whose permissions changed
- ``api``: functions with which a project announces changes
- ``feed``: follow the change logs, and pass the changes on
- ``change_set``: the changes of which clients of one server may be notified
- ``broadcaster``: notify sessions
- ``subscriptions``: notify clients that are connected to this process
- ``permission_rechecks``: end running calls that their caller may no longer make
"""
