"""The daemon's side of the sensor child: starts, watches and restarts it."""
