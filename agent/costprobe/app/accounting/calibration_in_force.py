"""The calibration by which the cost of a service's tokens is divided, or why there is none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.core.records import NS_PER_S
from costprobe.domain.costing.serving.served import Counts, ServedWindow
from costprobe.domain.costing.serving.stored_calibration import StoredCalibration
from costprobe.domain.costing.serving.token_weights import Weights

logger = logging.getLogger(__name__)

# The newest calibration of a service, and the fingerprint of the newest run of its probe; each None
# if there is none.
Calibrated = Callable[[str], tuple[StoredCalibration | None, str | None]]


class CalibrationInForce:
    """Looks up the calibration for each window of a service with `token_split = "calibrated"`.

    Args:
        config: The service.
        calibrated: Reads the store.
    """

    def __init__(self, config: ServiceConfig, calibrated: Calibrated) -> None:
        self._config = config
        self._calibrated = calibrated
        self._found: StoredCalibration | None = None
        self._problem = ""

    def for_window(self, window: ServedWindow) -> Callable[[Counts], Weights] | None:
        """Return the weights of tokens by calibration; None where none applies to a window."""
        if not self._config.is_calibrated:
            return None
        self._found, fingerprint = self._calibrated(self._config.name)
        problem = self._problem_of(self._found, fingerprint, window)
        if problem and problem != self._problem:
            logger.warning("service %s: %s", self._config.name, problem)
        self._problem = problem
        return self._found.times.weights if self._found is not None and not problem else None

    def _problem_of(
        self, found: StoredCalibration | None, fingerprint: str | None, window: ServedWindow
    ) -> str:
        command = f"costprobe calibrate {self._config.name}"
        models = [model for model in window.models if model]
        if len(models) > 1:
            return f"a calibration is that of one model, and {len(models)} are served"
        if found is None:
            return f"no calibration is stored; run {command}"
        if found.is_stale(fingerprint):
            day = datetime.fromtimestamp(found.time_ns / NS_PER_S, UTC).strftime("%Y-%m-%d")
            return (
                f"the calibration of {day} is stale, because the server or the probe"
                f" {found.probe} changed; run {command}"
            )
        return ""

    def status(self) -> dict[str, Any] | None:
        """Return the calibration of the last window for `costprobe status`; None unless configured."""
        if not self._config.is_calibrated:
            return None
        found = self._found
        return {
            "time_ns": None if found is None else found.time_ns,
            "probe": None if found is None else found.probe,
            "in_flight": None if found is None else found.in_flight,
            "fingerprint": None if found is None else found.fingerprint,
            "problem": self._problem or None,
        }
