"""The daemon: builds the parts from the configuration, schedules, starts, reloads, stops."""
