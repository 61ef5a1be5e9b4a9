"""What would cost less.

Answers: each workload on every supply (device, schedule, plan), by what a month costs; where a
service's load lies on its load curve, and what fewer replicas save; the load to come, and when
capacity ends; self-hosted or hosted models; a model or a server on other boards, predicted.
Reads: rows of the store, `[[workload]]`, `[[api]]`, prices (in `gather`, once for each answer).
Writes: nothing.

Open `gather` for the input, then `supply` and `savings` for the arithmetic. Each alternative has
its evidence: it was measured, or it is not listed. `where`, `decoder` and `served` predict, and stand
apart.
"""
