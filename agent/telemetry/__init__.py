"""Telemetry: the sensor child, which owns NVML and RAPL, and the daemon's supervisor of it.

The child is `agent.telemetry.child`; the daemon imports `agent.telemetry.supervisor` alone, and so
never loads a vendor's library.
"""
