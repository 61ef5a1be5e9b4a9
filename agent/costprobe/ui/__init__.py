"""What people use: command line, dashboard, reports, Grafana, InfluxDB set-up, Prometheus rules.

Answers: nothing of its own; it asks feature rooms, and renders their records.
Reads: the configuration, the store (also while the daemon writes), the daemon's control socket,
and the database of a fleet.
Writes: standard output, files that a command was asked for, and what `install` and `influx setup`
set up.

Open `cli/main` for the table of commands, and `host_overview` for what dashboard, report and
terminal begin with. A command's file is imported only when it is called.
"""
