"""The daemon: builds the parts of a configuration; schedules, starts, reloads and stops them."""
