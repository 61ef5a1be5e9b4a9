"""Sensors: the child process, which loads the drivers' libraries, and the daemon's supervisor of it.

The daemon imports `supervisor/` and `protocol/` only, and so never loads a vendor's library.
"""
