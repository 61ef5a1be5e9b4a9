"""Rows to databases, and notices to people.

Answers: whether a sink or a notifier has acknowledged what was stored, and when to try again.
Reads: rows behind each sink's cursor, and each notifier's queue, in the store; `[[sink]]`,
`[[notifier]]`.
Writes: requests, and what was acknowledged or rejected, in the store.

Open `contract` first: `Sink` and `Notifier`. `kinds` has both tables. `loop` has the worker of a
sink or a notifier: live rows and the backlog alongside them, requests in flight, bisection of a
rejected batch, back-off. A kind neither retries nor buffers.
"""
