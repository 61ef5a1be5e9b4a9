"""The build of PyTorch for this host: the CUDA build where there is an NVIDIA driver."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TORCH_INDEX: Final = "https://download.pytorch.org/whl"
# As in scripts/setup. PyPI refuses versions with a local label, so this cannot select its CUDA build.
CPU_BUILD: Final = "torch==2.13.0+cpu"
_DRIVER: Final = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"))


def torch_arguments() -> list[str]:
    """Return the arguments of `pip install` for the build that suits this host."""
    if any(path.exists() for path in _DRIVER):
        return ["torch"]
    return ["--extra-index-url", f"{TORCH_INDEX}/cpu", CPU_BUILD]
