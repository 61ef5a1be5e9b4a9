"""The process: builds the parts of a configuration; starts, reloads and stops them.

Answers: which parts run, on which devices, and whether each is alive.
Reads: the configuration file, signals, requests on the control socket and over HTTP.
Writes: rows of `agent`, events of gaps in operation, the status document; notifications to
systemd.

Open `parts` first: every part and its order. `main` is the life cycle, `control` the socket of
the command line, `metrics` and `pages` the HTTP server, `fleet_watch` the process of `fleet
watch`. It contains no arithmetic and no SQL.
"""
