"""Cost of probe runs: time, energy and price become points."""
