"""The daemon's side of the sensor child: its messages, its supervisor, and the host's devices."""
