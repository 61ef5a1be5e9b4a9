"""Errors between services: devices that they share are divided over the same windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent.config_service import ServiceConfig
from agent.units import format_duration, parse_duration_s

_DEFAULT_WINDOW_S = float(ServiceConfig.model_fields["window_s"].default)
_ROUNDING = 1e-9


def service_contradictions(tables: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """What the tables of `service` say against each other; what is wrong in one is told elsewhere.

    Args:
        tables: As the file has them.
    """
    first: dict[str, tuple[int, float]] = {}
    shares: dict[str, float] = {}
    told: set[int] = set()
    for index, table in enumerate(tables):
        window_s, share = _window_s(table), _share(table.get("share"))
        devices = table.get("devices")
        for device in dict.fromkeys(devices if isinstance(devices, list) else ()):
            board = board_of(str(device))
            before, before_s = first.setdefault(board, (index, window_s))
            if window_s != before_s and index not in told:
                told.add(index)
                yield (
                    f"service[{index}].window: {format_duration(window_s)}, but service[{before}]"
                    f" has {format_duration(before_s)} and both hold {board}: what it costs is"
                    " divided over the same time; give them one window"
                )
            shares[str(device)] = shares.get(str(device), 0.0) + share
            if shares[str(device)] > 1 + _ROUNDING >= shares[str(device)] - share:
                yield (
                    f"service[{index}].share: the shares of {device} add up to"
                    f" {shares[str(device)]:.0%}; at most 100 % can be given away"
                )


def board_of(device: str) -> str:
    """The board that a device is, or is a part of: "gpu0" for "gpu0.mig1"."""
    return device.partition(".")[0]


def _window_s(table: Mapping[str, Any]) -> float:
    written = table.get("window")
    if not isinstance(written, str):
        return _DEFAULT_WINDOW_S
    try:
        return parse_duration_s(written)
    except ValueError:
        return _DEFAULT_WINDOW_S


def _share(written: Any) -> float:
    try:
        if isinstance(written, str):
            return float(written.strip().removesuffix("%")) / 100
        return 0.0 if written is None else float(written)
    except (TypeError, ValueError):
        return 0.0
