"""Sensors: the child process, which loads the drivers' libraries, and its supervisor in the daemon.

The daemon imports only `supervisor/` and `protocol/`, and never loads a vendor's library.
"""
