"""What a device-hour costs.

Answers: the plan and the rate of a device at any instant, present or past; the price of a kWh and
its emissions; the price where none is configured; list prices of clouds, GPUs and hosted models.
Reads: `[[price]]`, `[electricity]`, `[carbon]`, the tables in `data/` and newer ones beside the
store, sources of prices (through `adapters/clouds`), and the prices stored before.
Writes: prices read from a source, and each device's last terms, as small documents of the store.

Open `book` first: it is what all others ask. `plans` has the contract `Plan` and its kinds,
`prices` the prices in force on this host. A rate is divided among devices in decimal numbers.
"""
