"""What to do about the cause of a deterioration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from costprobe.core.records import BOARD

# A power limit that is lower than before.
LOWERED = "lowered power limit"
_ACTIONS: Mapping[str, str] = {
    BOARD: "compare the boards with `nvidia-smi -L`, and accept the new level or replace the board",
    "software": "roll back the update, or accept the new level if it was intended",
    "annotation": "roll back what was deployed, or accept the new level if it was intended",
    "batch": "restore the batch, or accept the new level if it was intended",
    "neighbour": "move the other process to another device (`nvidia-smi` lists it)",
    "memory errors": "drain the device and check it with `nvidia-smi -q -d ECC`",
    "cooling": "check fan and airflow (`nvidia-smi -q -d TEMPERATURE`)",
    "thermal throttling": "check fan and airflow (`nvidia-smi -q -d TEMPERATURE,PERFORMANCE`)",
    "power limit": "compare the power with its limit, and check the power supply (`nvidia-smi -q -d POWER`)",
    LOWERED: "restore the limit with `nvidia-smi -pl WATTS`, or accept the new level if it was intended",
    "clock": "check clock limits and power states (`nvidia-smi -q -d CLOCK`)",
    "memory clock": "check clock limits and power states (`nvidia-smi -q -d CLOCK`)",
    "prompt lengths": "compare the probe's prompts with those before",
    "memory pressure": "free memory of the device (`nvidia-smi` lists its processes)",
    "replicas": "hold fewer devices, or accept the new level if the capacity is intended",
    "saturation": "add a replica, or give the KV cache more memory",
    "price": "compare the price plans with `costprobe price history`",
    "demand": "check whether requests arrive as intended, or hold fewer devices",
    "mix": "check which clients send other requests, and the cache of prompts",
    "efficiency": "compare the server's version and settings, and the clocks of its devices",
    "temperature": "check fan and airflow (`nvidia-smi -q -d TEMPERATURE`)",
}
_UNKNOWN_ACTION = (
    "compare the runs before and after with `costprobe trend`, and look for changes then"
)
# What shows and sets the same of AMD's boards, whose names as devices begin with "amd". Source of the options:
# amdsmi_cli/amdsmi_parser.py of ROCm/amdsmi.
_OF_AMD: Final = {
    "nvidia-smi -L": "amd-smi list",
    "nvidia-smi": "amd-smi process",
    "nvidia-smi -q -d ECC": "amd-smi metric --ecc",
    "nvidia-smi -q -d TEMPERATURE": "amd-smi metric --temperature",
    "nvidia-smi -q -d TEMPERATURE,PERFORMANCE": "amd-smi metric --temperature",
    "nvidia-smi -q -d POWER": "amd-smi metric --power",
    "nvidia-smi -q -d CLOCK": "amd-smi metric --clock",
    "nvidia-smi -pl WATTS": "amd-smi set --power-cap WATTS",
}
_COMMAND: Final = re.compile(r"(?<=`)nvidia-smi[^`]*")


def action_of(name: str, device: str = "") -> str:
    """Return what to do about the cause of a deterioration.

    Args:
        name: Name of a cause, or "unknown".
        device: Name of the device, or names joined by "+"; empty if it is not of one.
    """
    action = _ACTIONS.get(name.partition(":")[0], _UNKNOWN_ACTION)
    if not device.startswith("amd"):
        return action
    return _COMMAND.sub(lambda command: _OF_AMD[command[0]], action)
