"""The check for GPUs that became slower or hungrier than their peers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from costprobe.adapters.fleet.watch_settings import FleetWatchConfig
from costprobe.app.fleet.answers import ARRIVED_NS
from costprobe.app.fleet.check import FleetCheck, FleetQuery
from costprobe.app.fleet.outliers import fleet_outliers
from costprobe.core.incident import Fault
from costprobe.core.money_text import money
from costprobe.core.records import NS_PER_S
from costprobe.domain.detection.causes import action_of
from costprobe.domain.fleet.outliers import Outlier, largest

# An outlier ends when so many answers in a row do not list it, although it was tested.
CLEAR_ANSWERS: Final = 3


@dataclass(slots=True)
class _Listed:
    """An outlier.

    Attributes:
        fault: What is reported.
        missed: Number of answers in a row that tested it and did not list it.
        tested_ns: UTC in ns of the last answer that tested it.
    """

    fault: Fault
    missed: int
    tested_ns: int


class NewOutliers(FleetCheck):
    """Finds outliers among the GPUs, as `costprobe fleet outliers` does.

    A GPU that cannot be tested, because its software or model changed or it has too few runs, stays listed for the
    period.

    Args:
        config: The section [fleet.watch].
    """

    name = "outliers"

    def __init__(self, config: FleetWatchConfig) -> None:
        self._config = config
        self._period_ns = int(config.outliers_period_s * NS_PER_S)
        self._listed: dict[str, _Listed] = {}

    def evaluate(self, query: FleetQuery) -> None:
        """See `FleetCheck.evaluate`."""
        now_ns = query.now_ns
        end_ns = now_ns - ARRIVED_NS
        with query.over(end_ns - self._period_ns, end_ns) as answers:
            found = fleet_outliers(answers, self._config.within)
        tested = {(test.deviation.host, test.deviation.device) for test in found.tests}
        now = {_subject(one.host, one.device): one for one in found.outliers}
        for subject, listed in list(self._listed.items()):
            host, device = listed.fault.labels["host"], listed.fault.labels.get("device", "")
            if (host, device) in tested:
                listed.missed, listed.tested_ns = listed.missed + 1, now_ns
            is_over = listed.missed >= CLEAR_ANSWERS
            if subject not in now and (is_over or now_ns - listed.tested_ns > self._period_ns):
                del self._listed[subject]
        for subject, one in now.items():
            self._listed[subject] = _Listed(_fault(one), 0, now_ns)

    def faults(self) -> list[Fault]:
        """Return a fault for each outlier."""
        return [listed.fault for listed in self._listed.values()]

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the outliers."""
        return [asdict(listed) for listed in self._listed.values()]

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Replace the state."""
        self._listed = {
            entry["fault"]["subject"]: _Listed(
                Fault(**entry["fault"]), int(entry["missed"]), int(entry["tested_ns"])
            )
            for entry in document
        }


def _subject(host: str, device: str) -> str:
    return f"{host} {device}".strip()


def _fault(one: Outlier) -> Fault:
    excesses = [
        f"{excess.mean * 100:+.1f} % {metric}"
        for metric, excess in (("time", one.time), ("energy", one.energy))
        if excess is not None
    ]
    cost = f"; {money(one.cost.mean, one.cost.currency)} a month" if one.cost else ""
    causes = "; ".join(cause.text for cause in one.explanation.causes) or "no signal differs"
    peers = ", ".join(part for part in one.peers if part)
    return Fault(
        "gpu_outlier",
        _subject(one.host, one.device),
        f"{one.host} {one.device or 'all GPUs'}: {' and '.join(excesses)} per inference above"
        f" {one.peer_count:,} peers{cost}",
        "warning",
        {"host": one.host, **({"device": one.device} if one.device else {})},
        cause=one.explanation.name,
        detail=f"{causes}: {action_of(one.explanation.name)}; peers: {peers}",
        value=largest(one) * 100,
    )
