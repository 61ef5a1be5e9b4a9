"""Drift and anomalies in a series, and what moved with them."""

from agent.detection.detector import Detector
from agent.detection.findings import Finding, Settings

__all__ = ["Detector", "Finding", "Settings"]
