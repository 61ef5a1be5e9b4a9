"""Arithmetic and small state machines: no I/O, no threads, no clock."""
