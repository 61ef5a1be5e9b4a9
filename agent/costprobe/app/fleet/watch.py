"""The checks of `costprobe fleet watch`: when each is due, what they found, and whether the database answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from costprobe.adapters.fleet.reader import FleetReader
from costprobe.adapters.fleet.watch_settings import FleetSection
from costprobe.adapters.net.errors import DeliveryError
from costprobe.app.fleet.check import FleetCheck, FleetQuery, PartialAnswerError
from costprobe.app.fleet.fleet_budgets import FleetBudgets
from costprobe.app.fleet.fleet_drift import FleetDrift
from costprobe.app.fleet.new_outliers import NewOutliers
from costprobe.app.fleet.silent_hosts import SilentHosts
from costprobe.core.incident import Fault
from costprobe.core.records import NS_PER_S, Point

logger = logging.getLogger(__name__)

STATE: Final = "fleet"


class FleetWatch:
    """The checks of a fleet.

    A check that the database does not answer completely keeps its last result, so that it neither fires nor
    resolves anything, and is asked again at the next evaluation.

    Args:
        config: The section [fleet].
        reader: The database.
        tags: Labels, on every row.
        is_stopping: Whether the process ends: then no check is begun, and an error of one is no failure.

    Attributes:
        hosts: The check for silent hosts.
        budgets: The check of budgets.
    """

    def __init__(
        self,
        config: FleetSection,
        reader: FleetReader,
        tags: Mapping[str, str],
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        watch = config.watched
        self._reader = reader
        self._is_stopping = is_stopping
        self._analyze_ns = int(watch.analyze_every_s * NS_PER_S)
        self.hosts = SilentHosts(config)
        self.budgets = FleetBudgets(watch.budget, tags)
        self._checks: list[FleetCheck] = [self.hosts, FleetDrift(watch)]
        self._checks += [NewOutliers(watch)] if watch.outliers else []
        self._checks += [self.budgets] if watch.budget else []
        self._failing: dict[str, str] = {}
        self._analyzed: dict[str, int] = {}

    def query(self, now_ns: int) -> FleetQuery:
        """Return the database as of an evaluation at a UTC ns."""
        return FleetQuery(self._reader, now_ns)

    def evaluate(self, now_ns: int, *, at_once: bool = False) -> list[Point]:
        """Run the checks that are due; return the rows that they computed.

        Args:
            now_ns: UTC in ns, the same of all watchers: a multiple of `every`.
            at_once: Whether checks that were never run are due now, not at the next multiple of
                `analyze_every`.
        """
        query = self.query(now_ns)
        points: list[Point] = []
        for check in self._checks:
            if self._is_stopping():
                break
            if check.is_analysis and not self._is_due(check.name, now_ns, at_once=at_once):
                continue
            try:
                check.evaluate(query)
            except (DeliveryError, PartialAnswerError) as error:
                self.fail(check.name, str(error))
            except Exception as error:
                if self._is_stopping():
                    break
                # The other checks, and the alert about this one, do not depend on it.
                logger.exception("the check of %s failed", check.name)
                self.fail(check.name, f"unexpected {type(error).__name__}")
            else:
                self.succeed(check.name)
                self._analyzed[check.name] = now_ns // self._analyze_ns
                points += check.points()
        return points

    def fail(self, name: str, reason: str) -> None:
        """Record that a check, or another question of the watcher, has no answer."""
        if self._failing.get(name) != reason:
            logger.warning("%s: no complete answer of the fleet's database: %s", name, reason)
        self._failing[name] = reason

    def succeed(self, name: str) -> None:
        """Record an answer."""
        if self._failing.pop(name, None) is not None:
            logger.info("%s: the fleet's database answers again", name)

    def faults(self) -> list[Fault]:
        """Return what the checks found, and those that have no answer."""
        faults = [fault for check in self._checks for fault in check.faults()]
        return faults + [
            Fault(
                "fleet_unread",
                name,
                f"{name}: the fleet's database does not answer completely ({reason}); what was found before"
                " stays",
                "critical",
            )
            for name, reason in self._failing.items()
        ]

    @property
    def failing(self) -> Mapping[str, str]:
        """Why checks have no answer, by name."""
        return self._failing

    def document(self) -> dict[str, Any]:
        """Return the state of all checks as JSON."""
        return {
            "analyzed": self._analyzed,
            "checks": {check.name: check.document() for check in self._checks},
        }

    def restore(self, document: Mapping[str, Any]) -> None:
        """Restore a state; that of a check that is damaged is discarded."""
        stored = document.get("checks", {})
        self._analyzed = dict(document.get("analyzed", {}))
        for check in self._checks:
            if check.name in stored:
                try:
                    check.restore(stored[check.name])
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    logger.warning("%s: discarded a damaged state: %s", check.name, error)

    def _is_due(self, name: str, now_ns: int, *, at_once: bool) -> bool:
        """Return whether an interval of `analyze_every` began since the last answer, or it has none yet."""
        last = self._analyzed.get(name)
        number = now_ns // self._analyze_ns
        if last is None:
            if at_once or name in self._failing:
                return True
            # Not before the next multiple, when the other watchers ask, too.
            self._analyzed[name] = number
            return False
        return number != last
