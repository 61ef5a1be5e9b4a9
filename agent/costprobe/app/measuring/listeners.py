"""What a terminal shows of probe runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from costprobe.adapters.probing.outcome import ProbeFault, ProbeProgress
from costprobe.app.measuring.targets import AnyProbe, ProbeTarget
from costprobe.domain.costing.probe.run import ProbeReport


@dataclass(frozen=True, slots=True)
class Listeners:
    """Callbacks for probe runs.

    Attributes:
        on_progress: Receives the phases of a run.
        on_report: Receives the report of a run.
        on_fault: Receives the fault of a run without a result.
    """

    on_progress: Callable[[AnyProbe, ProbeTarget, ProbeProgress], None]
    on_report: Callable[[ProbeReport], None]
    on_fault: Callable[[AnyProbe, ProbeTarget, ProbeFault], None]
