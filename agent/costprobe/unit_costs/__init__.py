"""The cost of an inference or a token: now, compared, changed.

Answers: the unit cost of each model and service now, with its trend; two spans compared, as exact
parts: price, time, energy, demand, mix, efficiency; models compared: the Pareto front, and the
cheapest within limits.
Reads: rows of `cost`, `probe` and `serving` in the store, `[[price_file]]`.
Writes: price files for gateways, once a day (`price_files`).

Open `change` first: its decompositions are used by `drift`, `savings` and `fleet`. It does not
import the rooms that make the rows.
"""
