"""The GPU model of a driver's product name: "A100-PCIE-80GB" is the "NVIDIA A100 80GB PCIe"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from costprobe.domain.pricing.catalogue.table import lines_of, rows_of

GPU_COLUMNS = ("gpu_model", "memory_gb", "tdp_w", "source")
# Old drivers omit the vendor's name, new ones the product line's.
_BRANDS = {"NVIDIA", "TESLA", "QUADRO", "GEFORCE", "AMD", "INSTINCT", "HGX"}
_NO_PART_OF_A_MODEL = {"GENERATION", "EDITION", "AC", "LC", "GPU"}
_MEMORY = re.compile(r"(\d+)(?:G|GB|GIB)")
_MEMORY_KIND = re.compile(r"HBM\d?E?")
_FORM = re.compile(r"(SXM|PCIE|NVL|OAM|FHHL)\d*")
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU model.

    Attributes:
        model: Name as NVML reports it.
        memory_gb: Memory; None if unknown.
    """

    model: str
    memory_gb: Decimal | None


class _Parts(NamedTuple):
    """Parts of a product name: what it is, its form factor, and its memory in GB."""

    family: frozenset[str]
    form: str
    memory_gb: int | None


class GpuNames:
    """The known GPU models, by the product names of drivers.

    Args:
        gpus: The models.
    """

    def __init__(self, gpus: Sequence[GpuModel]) -> None:
        self.gpus = tuple(gpus)
        self._parts = [(gpu, _parts(gpu.model)) for gpu in gpus]

    def models_of(self, name: str, memory_bytes: int | None = None) -> list[GpuModel]:
        """Return the models of a product name, the nearest first; empty for an unknown name.

        Models of one family differ in form factor and memory: first comes that of the name, or if
        the name has neither, the one whose memory is nearest to the device's.

        Args:
            name: The driver's product name.
            memory_bytes: Memory of the device, where known.
        """
        parts = _parts(name)
        similar = [(gpu, own) for gpu, own in self._parts if own.family == parts.family]
        device_gb = None if memory_bytes is None else memory_bytes / _GIB

        def distance(entry: tuple[GpuModel, _Parts]) -> tuple[bool, bool, float, float, bool, str]:
            gpu, own = entry
            known_gb = float(gpu.memory_gb or own.memory_gb or 0)
            named = 0.0 if parts.memory_gb is None else abs(parts.memory_gb - (own.memory_gb or 0))
            seen = 0.0 if device_gb is None else abs(device_gb - known_gb)
            is_named_otherwise = (own.memory_gb is None) != (parts.memory_gb is None)
            form = own.form != parts.form
            return (gpu.model != name, form, named, seen, is_named_otherwise, gpu.model)

        return [gpu for gpu, _ in sorted(similar, key=distance)]


def parse_gpus(text: str) -> tuple[GpuModel, ...]:
    """Parse the table of GPU models.

    Raises:
        ValueError: Another schema, or a value out of range; the message states the line.
    """
    return tuple(
        GpuModel(
            row.text("gpu_model", required=True),
            row.number("memory_gb", Decimal(1), Decimal(1024)),
        )
        for row in rows_of(lines_of(text), GPU_COLUMNS)
    )


def _parts(name: str) -> _Parts:
    family, form, memory_gb = set(), "", None
    # The profile of a MIG device follows its board's name.
    board, _, _ = name.upper().partition(" MIG ")
    for word in board.replace("-", " ").split():
        memory, shape = _MEMORY.fullmatch(word), _FORM.fullmatch(word)
        if memory:
            memory_gb = int(memory[1])
        elif shape:
            form = "PCIE" if shape[1] == "FHHL" else shape[1]
        elif not _MEMORY_KIND.fullmatch(word) and word not in _BRANDS | _NO_PART_OF_A_MODEL:
            family.add(word)
    return _Parts(frozenset(family), form, memory_gb)
