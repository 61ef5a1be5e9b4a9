"""The outcome of starting a model: validated durations, and the files that the start read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costprobe.core.records import NS_PER_S
from costprobe.domain.costing.probe.reported import ModelStart


@dataclass(frozen=True, slots=True)
class StartOutcome:
    """A start with a first answer.

    Attributes:
        start: Its durations.
        files: Files that it read, if they were asked for.
    """

    start: ModelStart
    files: tuple[Path, ...]


def read_start(message: Mapping[str, Any], began_ns: int) -> StartOutcome:
    """Validate a worker's report of a start.

    Args:
        message: The worker's report.
        began_ns: Start of the process, CLOCK_MONOTONIC ns.

    Raises:
        ValueError: A field is missing or invalid.
    """
    try:
        received_ns, loaded_ns, answered_ns = (
            int(message[name]) for name in ("received_ns", "loaded_ns", "answered_ns")
        )
        read = message["read_bytes"]
        start = ModelStart(
            process_start_s=(received_ns - began_ns) / NS_PER_S,
            load_s=(loaded_ns - received_ns) / NS_PER_S,
            first_answer_s=(answered_ns - loaded_ns) / NS_PER_S,
            read_bytes=None if read is None else int(read),
            fingerprint=str(message["fingerprint"]),
        )
        folders = dict(message["files"] or {})
        files = tuple(
            Path(str(folder), str(name)) for folder, names in folders.items() for name in names
        )
    except (KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not began_ns <= received_ns <= loaded_ns <= answered_ns:
        raise ValueError("the instants of its start are out of order")
    return StartOutcome(start, files)
