"""What was measured, as a hash: two results with the same one are of the same thing."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys

import torch
from torch import nn

DRIVER_VERSION_FILE = "/proc/driver/nvidia/version"
LENGTH = 12


def software(device: torch.device, driver_file: str = DRIVER_VERSION_FILE) -> dict[str, str]:
    """Versions of all that runs a forward pass, and the device's name.

    Args:
        device: The device under test.
        driver_file: Where the NVIDIA kernel driver says its version.
    """
    found = {
        "torch": torch.__version__,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    if device.type == "cuda":
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call] # torch does not type it
        found["device_name"] = torch.cuda.get_device_name(device)
        driver = _driver_version(driver_file)
        if driver is not None:
            found["driver"] = driver
    else:
        found["device_name"] = platform.machine()
        found["threads"] = str(torch.get_num_threads())
    return found


def model_facts(module: nn.Module, *, kind: str, path: str | None, dtype: str) -> dict[str, str]:
    """What identifies a model: its kind, dtype, parameter shapes and weights.

    The weights enter as sums of each tensor: enough to tell one training run's file from the
    next, and cheap enough to compute on every start.
    """
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        total = torch.sum(tensor.detach(), dtype=torch.float64).item()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {total!r}\n".encode())
    return {"model": path or kind, "dtype": dtype, "weights": digest.hexdigest()[:LENGTH]}


def fingerprint(facts: dict[str, str]) -> str:
    """Twelve hex digits of the facts' SHA-256; the same in every process."""
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def _driver_version(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - one small read
            match = re.search(r"(\d{3,}\.\d+(?:\.\d+)?)", file.read(4096))
    except OSError:
        return None
    return match[1] if match else None
