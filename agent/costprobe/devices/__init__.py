"""What the devices cost and used.

Answers: what a device cost between two instants, split where its price changes; its energy and
busy time between two instants, by process; when probes ran on it; and what the server used beside
its devices.
Reads: readings of the sensor child, the server's power, prices of `pricing`, `[telemetry]`.
Writes: rows of `device` and `server`, and events of price changes.

Open `readings` first: it prices what the supervisor delivers, and stores it. `charges` keeps the
charges of the last windows, and `use` the energy, for the cost of services. `server` is read apart.
"""
