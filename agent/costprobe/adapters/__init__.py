"""The outside world: sensors, probe children, serving engines, storage, sinks and notifiers."""
