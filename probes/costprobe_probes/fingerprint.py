"""The facts that identify what a probe measures: software versions, device, model and weights."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from itertools import chain

import torch

from costprobe_probes.workload import Workload

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
    """Return the versions of all software that a forward pass uses, and the name of the device.

    Args:
        device: The device under test.
        driver_file: File in which the NVIDIA kernel driver reports its version.
        cpuinfo_file: File in which the kernel names the processor.
    """
    versions = {
        "torch": torch.__version__,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    versions["matmul_precision"] = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        versions["cuda"] = str(torch.version.cuda)
        versions["cudnn_benchmark"] = str(torch.backends.cudnn.benchmark)
        versions["cudnn_deterministic"] = str(torch.backends.cudnn.deterministic)
        versions["allow_tf32"] = str(torch.backends.cuda.matmul.allow_tf32)
        versions["cudnn"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call] # torch does not type it
        versions["device_name"] = torch.cuda.get_device_name(device)
        driver = _driver_version(driver_file)
        if driver is not None:
            versions["driver"] = driver
    else:
        versions["device_name"] = _processor_name(cpuinfo_file)
        versions["threads"] = str(torch.get_num_threads())
    return versions


def model_facts(workload: Workload, *, name: str, dtype: str | None) -> dict[str, str]:
    """Return the identity of a model: name, dtype, parameters, weights, and the inputs of one item.

    Weights are included as exact sums of their bits: this distinguishes the files of two training
    runs, is the same on every device and for every number of threads, and is cheap enough to
    compute at every start. State that is not a tensor is not included.

    Args:
        workload: The model and its inputs.
        name: Name in the configuration: a kind, or the path of a factory.
        dtype: Configured dtype; None if the model keeps its own.
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
    if workload.files:
        facts["file"] = workload.digest
    return facts


def _sum_of_bits(tensor: torch.Tensor) -> str:
    """Return the sum of the elements as integers of their width, modulo 2^64."""
    try:
        flat = tensor.detach().contiguous()
        if flat.is_complex():
            flat = torch.view_as_real(flat)
        words = flat.flatten().view(_WORDS[flat.element_size()])
        return str(words.sum(dtype=torch.int64).item())
    except (KeyError, NotImplementedError, RuntimeError, TypeError):
        return "opaque"  # quantized, sparse or on no device: shape and dtype identify it


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
