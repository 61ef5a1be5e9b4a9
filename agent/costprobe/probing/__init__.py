"""What an inference costs, measured by probes of a model or of a server.

Answers: latency, throughput, energy and cost of an inference on a device without other load; the
start of a model; a server's cost and latency by its load, and its cheapest load.
Reads: `[[probe]]`, `[probing]`, results of the probe child and the load child, energy and
conditions of the sensor child, prices.
Writes: rows of `probe`, `cost` and `software`, events of changed software or boards, and the
state of each job. Rows of `cold_start` and `sweep` are made here or by a command, which sends
them to the daemon.

Open `run` first: one run from the request to the measured result. `jobs` decides when a probe may
run; `cost` is the pure function from a measured run to its complete record, events and the next
state; `rows` writes the record as rows and as JSON.
"""
