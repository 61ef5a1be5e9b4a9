"""What everything costs: a span, a month, a budget.

Answers: what devices or services cost in a span, by service, model, tenant, label or day, and how
much of the time is covered; the status and forecast of each budget; whether a cloud's bill matches.
Reads: rows of `device`, `allocation` and `tenant` in the store, `[[budget]]`.
Writes: rows of `budget`, and the conditions of each budget.

Open `query` first: the one question. `now` answers it for the hour, the day and the month,
`evaluate` for the budgets of the host; `bills` for a cloud's bill; `budget`, `forecast` and
`reconcile` are arithmetic.
"""
