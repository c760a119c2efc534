"""
Calls: find the declaration, run it for a principal, and produce the response.

`methods` has one function for each method of the protocol. `runner` runs a call until it has a
response or asks the client. `execution` runs the project's code. `call_state` holds the state of a
running call, and the output that its transport gives it. `results`, `errors` and `output` make its
messages. `listing` and `visibility` decide what a caller can see.

`session_calls` runs calls of sessions, and `session_output` stores what they send as rows.
`recovery` decides about the calls of a dead worker. `callers` loads their current principals and
ends what was revoked. `interaction` has questions to the client, and `once` has steps that run
once. `rate_limits` limits calls.
"""
