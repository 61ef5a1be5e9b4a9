"""The same questions over all hosts.

Answers: hosts and which are silent; spend, unit costs and their change across hosts; GPUs that
deviate from their peers; what an update did; what to release; services of several hosts; the checks
of `fleet watch`.
Reads: the database to which the hosts push, or that scrapes them (through `adapters/databases`),
`[fleet.watch]`.
Writes: heartbeats as rows of `watcher` in that database, through a sink (`watch`).

Open `answers` first: a period, and each question asked once. `peers` and `updates` are the
statistics; `watch` runs the checks, and holds the lease.
"""
