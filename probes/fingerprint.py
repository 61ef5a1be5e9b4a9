"""What was measured, as a hash: two results with the same one are of the same thing."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from itertools import chain

import torch

from probes.workload import Workload

DRIVER_VERSION_FILE = "/proc/driver/nvidia/version"
CPUINFO_FILE = "/proc/cpuinfo"
LENGTH = 12
HEAD_CHARS = 4096
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def software(
    device: torch.device,
    driver_file: str = DRIVER_VERSION_FILE,
    cpuinfo_file: str = CPUINFO_FILE,
) -> dict[str, str]:
    """Versions of all that runs a forward pass, and the device's name.

    Args:
        device: The device under test.
        driver_file: Where the NVIDIA kernel driver says its version.
        cpuinfo_file: Where the kernel names the processor.
    """
    found = {
        "torch": torch.__version__,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    found["matmul_precision"] = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        found["cuda"] = str(torch.version.cuda)
        found["cudnn_benchmark"] = str(torch.backends.cudnn.benchmark)
        found["cudnn_deterministic"] = str(torch.backends.cudnn.deterministic)
        found["allow_tf32"] = str(torch.backends.cuda.matmul.allow_tf32)
        found["cudnn"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call] # torch does not type it
        found["device_name"] = torch.cuda.get_device_name(device)
        driver = _driver_version(driver_file)
        if driver is not None:
            found["driver"] = driver
    else:
        found["device_name"] = _processor_name(cpuinfo_file)
        found["threads"] = str(torch.get_num_threads())
    return found


def model_facts(workload: Workload, *, name: str, dtype: str | None) -> dict[str, str]:
    """What identifies a model: its name, dtype, parameters, weights, and the inputs of one item.

    The weights enter as exact sums of their bits: enough to tell one training run's file from
    the next, the same on every device and with every number of threads, and cheap enough to
    compute on every start. Extra state that is no tensor does not enter.

    Args:
        workload: The model and its inputs.
        name: What the operator calls it: a kind, or the path of a factory.
        dtype: What it was brought to; None if it was left as it was made.
    """
    digest = hashlib.sha256()
    module = workload.module
    for key, tensor in chain(module.named_parameters(), module.named_buffers()):
        digest.update(
            f"{key} {tuple(tensor.shape)} {tensor.dtype} {_sum_of_bits(tensor)}\n".encode()
        )
    inputs = workload.inputs(workload.min_batch)
    shapes = [f"{tuple(x.shape)} {x.dtype}" for x in inputs.args]
    shapes += [f"{key} {tuple(x.shape)} {x.dtype}" for key, x in sorted(inputs.kwargs.items())]
    facts = {
        "model": name,
        "dtype": dtype or "as made",
        "inputs": ", ".join(shapes),
        "weights": digest.hexdigest()[:LENGTH],
    }
    if workload.weights:
        facts["weights_source"] = workload.weights
    if workload.digest:
        facts["file"] = workload.digest
    return facts


def _sum_of_bits(tensor: torch.Tensor) -> str:
    """The sum of a tensor's elements, taken as integers of their width; it wraps around."""
    try:
        flat = tensor.detach().contiguous()
        if flat.is_complex():
            flat = torch.view_as_real(flat)
        words = flat.flatten().view(_WORDS[flat.element_size()])
        return str(words.sum(dtype=torch.int64).item())
    except (KeyError, NotImplementedError, RuntimeError, TypeError):
        return "opaque"  # quantized, sparse or on no device: shape and dtype speak for it


def _driver_version(path: str) -> str | None:
    match = re.search(r"(\d{3,}\.\d+(?:\.\d+)?)", _head(path))
    return match[1] if match else None


def _processor_name(path: str) -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", _head(path), re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def _head(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - one small read
            return file.read(HEAD_CHARS)
    except OSError:
        return ""
