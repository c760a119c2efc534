"""
Calls: find the declaration, run it for a principal, and produce the response.

- ``methods``: one function for each method of the protocol
- ``runner``: run a call until it has a response or asks the client
- ``records``: what was called, by whom, with which outcome, and who is told of it
- ``audit``: which calls are stored in the audit log, and what of them
- ``execution``: run the project's code, in a thread or in the event loop
- ``call_state``: the state of a running call, and the output that its transport gives it
- ``output``: progress notifications and log messages
- ``results``, ``errors``: make the response from what the project's code returned or raised
- ``listing``, ``visibility``: what a caller can see
- ``interaction``: questions to the client, and the state of a call between its runs
- ``approvals``, ``approval_mail``: calls that a second person must approve
- ``dry_run``: what such a call would change
- ``once``: steps that run once
- ``time_limits``: stop what takes too long
- ``throttling``: count calls against throttles, and limit log messages and progress

Calls of sessions:

- ``session_calls``: start and continue the calls that this process runs
- ``session_output``: what a call sends, stored as rows, and the registry of the running calls
- ``recovery``: what happens to the calls of a dead worker
- ``callers``: the current principals of calls, and which of them were revoked
- ``administration``: administrators end sessions and cancel calls
"""
