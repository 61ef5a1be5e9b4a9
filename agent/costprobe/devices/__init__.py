"""What the devices cost and used.

Answers: what a device cost between two instants, split where its price changes; its energy and
busy time between two instants, by process; and when probes ran on it.
Reads: readings of the sensor child, prices of `pricing`, `[telemetry]`.
Writes: rows of `device`, and events of price changes.

Open `readings` first: it prices what the supervisor delivers, and stores it. `charges` keeps the
charges of the last windows, and `use` the energy, for the cost of services.
"""
