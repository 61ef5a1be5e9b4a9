"""The kinds of device that a host may have, and every difference between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, get_args

DeviceKind = Literal["gpu", "mig", "cpu"]


@dataclass(frozen=True, slots=True)
class KindTraits:
    """Properties of a kind of device.

    Attributes:
        is_slice: Whether it is a part of a board (its parent): the board's power, energy and price
            include it.
        is_host: Whether it is the host's CPUs: a host price applies to it only if there is no
            accelerator, and torch calls it "cpu".
        idle_sample_pct: Utilization in percent up to which a sample counts as idle. It is 0 on an idle
            GPU, but never on a host.
        idle_hour_pct: Mean utilization in percent below which an hour counts as idle.
        busy_share: Share of time above which other processes on the device defer a probe.
    """

    is_slice: bool = False
    is_host: bool = False
    idle_sample_pct: float = 0.0
    idle_hour_pct: float = 1.0
    busy_share: float = 0.1


DEVICE_KINDS: Final[Mapping[DeviceKind, KindTraits]] = MappingProxyType(
    {
        "gpu": KindTraits(),
        "mig": KindTraits(is_slice=True),
        "cpu": KindTraits(is_host=True, idle_sample_pct=5.0, idle_hour_pct=5.0, busy_share=0.5),
    }
)


def parse_kind(text: str) -> DeviceKind | None:
    """Return the kind of device from a tag; None if the text is not a kind."""
    return next((kind for kind in get_args(DeviceKind) if kind == text), None)


def is_slice_kind(text: str) -> bool:
    """Return whether a tag `kind` is that of a part of a board."""
    kind = parse_kind(text)
    return kind is not None and DEVICE_KINDS[kind].is_slice
