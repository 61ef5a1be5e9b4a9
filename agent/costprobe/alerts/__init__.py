"""Who is notified, and when.

Answers: which rules are violated, which incidents are open, silenced or resolved, and which
notifiers receive a notice.
Reads: every stored row and the faults of the status document, `[[rule]]`, `[alerting]`,
`[[maintenance]]`, silences.
Writes: rows of `alert`, events of the detectors, incidents, and notices in the queue of each
notifier, committed together.

Open `watching` first: each stored row passes through it to detectors and rules. `engine` turns
symptoms into incidents; `rules/rule` is the contract of a rule, `rules/kinds` the table. Rules
read no clock, so `replay` gives the same incidents again.
"""
