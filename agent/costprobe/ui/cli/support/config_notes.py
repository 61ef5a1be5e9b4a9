"""What `costprobe config check` finds beside the file: devices of this host, and files of prices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from costprobe.adapters.clouds.source import SourceError
from costprobe.configuration import Config
from costprobe.core.config.fields import SourceConfig
from costprobe.core.records import natural
from costprobe.pricing.electricity import parse_carbon
from costprobe.pricing.plans import FeedPlan, parse_spot
from costprobe.pricing.prices import read_output
from costprobe.ui.cli.support.discovery import discovered_devices


def device_notes(config: Config) -> Iterator[str]:
    """Devices that the file names and this host does not have now; a sensor process looks."""
    named_devices = list(_named_devices(config))
    if not named_devices:
        return
    devices = discovered_devices(config.telemetry)
    present = {device.name for device in devices}
    for key, device in named_devices:
        if device not in {*present, *(device.uuid for device in devices)}:
            there = ", ".join(sorted(present, key=natural)) or "none"
            yield f"{key}: this host has no device {device} now; devices: {there}"


def _named_devices(config: Config) -> Iterator[tuple[str, str]]:
    for index, budget in enumerate(config.budget):
        if budget.device is not None:
            yield f"budget[{index}].device", budget.device
    for index, plan in enumerate(config.price):
        if plan.device is not None:
            yield f"price[{index}].device", plan.device
    for key, tables in (("probe", config.probe), ("service", config.service)):
        for index, table in enumerate(tables):
            for device in () if table.devices == "all" else table.devices:
                yield f"{key}[{index}].devices", device


def source_file_findings(config: Config) -> tuple[list[str], list[str]]:
    """Check the files of prices and carbon intensities, as the daemon will read them.

    Returns:
        Errors of files with content that the daemon would refuse, and notes on files that cannot be
        read now: `key.path: what is wrong`.
    """
    sources: list[tuple[str, SourceConfig, Callable[[str, int], object]]] = [
        (f"price[{index}].file", plan, partial(parse_spot, currency=plan.currency))
        for index, plan in enumerate(config.price)
        if isinstance(plan, FeedPlan)
    ]
    if config.carbon is not None:
        sources.append(("carbon.file", config.carbon, parse_carbon))
    problems, notes = [], []
    for key, source, parse in sources:
        if source.file is not None:
            try:
                parse(read_output(source), time.time_ns())
            except SourceError as error:
                notes.append(f"{key}: {error}")
            except ValueError as error:
                problems.append(f"{key}: {source.file}: {error}")
    return problems, notes
