"""Device time or energy of a service's work, less what load and mix explain: shifts of efficiency."""

from __future__ import annotations

import base64
import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from costprobe.domain.detection.detector import Detector
from costprobe.domain.detection.extrapolated_shift import (
    LEAST_AFTER,
    Residual,
    most_likely_shift,
)
from costprobe.domain.detection.findings import DetectorSettings, Finding
from costprobe.domain.detection.load_model import LoadModel, LoadSample

# Samples from which the first load model is fitted, those between two fits, and those that are kept.
TRAINING = 48
FIT_EVERY = 24
MAX_SAMPLES = 480
MAX_SHIFTS = 8
# Samples in which a shift beyond the observed loads may have begun, those that they are compared with, and
# the standard errors from which the load model does not learn from what may have shifted.
JUDGED = 12
COMPARED = 24
SUSPECTED_ERRORS = 3.0
# Samples in which the level after a shift settles, and the share of the least effect that is worth a report.
SETTLING = 48
SETTLED_SHARE = 0.05
_SAMPLE_NUMBERS = 6


class EffortSeries:
    """Device time or energy per unit of work, less what load and mix explain.

    Args:
        settings: Sensitivity of the detector.
        slope: Expected change of ln effort with ln load.
        busy: For energy the series of device time, with which idle and busy power explain most of it.
    """

    def __init__(
        self, settings: DetectorSettings, slope: float, busy: EffortSeries | None = None
    ) -> None:
        self._slope, self._busy = slope, busy
        self.detector = Detector(settings)
        self.model: LoadModel | None = None
        self._samples: deque[LoadSample] = deque(maxlen=MAX_SAMPLES)
        self._since_fit = 0
        self._offset = 0.0
        # Samples since the last shift was found, and since the start of one that is suspected.
        self._since_shift = self._since_suspected = 0
        # The detector's level when the last shift was adopted.
        self._level = 0.0
        # Start (UTC in s) and size of the last shifts, which are not in the samples.
        self._shifts: deque[tuple[float, float]] = deque(maxlen=MAX_SHIFTS)

    def update(self, sample: LoadSample) -> list[tuple[float, float]]:
        """Add a sample; return start (UTC in s) and size of the shifts that it completes."""
        self._since_fit += 1
        self._since_shift += 1
        if self.model is None:
            self._samples.append(sample)
            if len(self._samples) >= TRAINING:
                self._fit()
                for known in self._samples:
                    self._detect(known)
            return []
        shifts = self._detect(sample)
        for since_s, change in shifts:
            self._offset += change
            is_known = bool(self._shifts) and self._shifts[-1][0] == since_s
            before = self._shifts.pop()[1] if is_known else 0.0
            self._shifts.append((since_s, before + change))
            self._samples = deque(
                (
                    _moved(known, -change) if known.time_s > since_s else known
                    for known in self._samples
                ),
                maxlen=MAX_SAMPLES,
            )
        self._samples.append(_moved(sample, -self._offset))
        if self._since_fit >= FIT_EVERY:
            self._fit()
        return shifts

    def history(self, count: int) -> dict[float, float]:
        """Return the logarithms of the last efforts less load and mix, by the UTC in s of their end."""
        if self.model is None:
            return {}
        shifts = list(self._shifts)
        return {
            known.time_s: self.model.rest(known)
            + math.fsum(change for since_s, change in shifts if known.time_s > since_s)
            for known in list(self._samples)[-count:]
        }

    def document(self) -> dict[str, Any]:
        """Return the state as JSON."""
        numbers = array("d")
        for sample in self._samples:
            numbers.extend(
                [sample.time_s, sample.load, *sample.mix, sample.effort, sample.is_capped]
            )
        return {
            "detector": base64.b64encode(self.detector.state()).decode(),
            "samples": base64.b64encode(numbers.tobytes()).decode(),
            "since_fit": self._since_fit,
            "since_shift": self._since_shift,
            "since_suspected": self._since_suspected,
            "offset": self._offset,
            "level": self._level,
            "shifts": list(self._shifts),
            "is_trained": self.model is not None,
        }

    def restore(self, document: dict[str, Any]) -> None:
        """Replace the state by one that `document` returned.

        Raises:
            KeyError, TypeError, ValueError: It is damaged.
        """
        detector = Detector.restore(base64.b64decode(document["detector"], validate=True))
        if detector.settings != self.detector.settings:
            raise ValueError("saved under other settings")
        numbers = array("d")
        numbers.frombytes(base64.b64decode(document["samples"], validate=True))
        if len(numbers) % _SAMPLE_NUMBERS:
            raise ValueError("the samples are truncated")
        samples = [
            LoadSample(time_s, load, (per_input, per_token), effort, bool(is_capped))
            for time_s, load, per_input, per_token, effort, is_capped in zip(
                *[iter(numbers)] * _SAMPLE_NUMBERS, strict=True
            )
        ]
        self.detector, self._samples = detector, deque(samples, maxlen=MAX_SAMPLES)
        self._offset = float(document["offset"])
        shifts = [(float(since_s), float(change)) for since_s, change in document["shifts"]]
        self._shifts = deque(shifts, maxlen=MAX_SHIFTS)
        # States of earlier versions have none of these.
        self._level = float(document.get("level", detector.level))
        self._since_shift = int(document.get("since_shift", 0))
        self._since_suspected = int(document.get("since_suspected", 0))
        if document["is_trained"] and samples:
            self._fit()
        self._since_fit = int(document["since_fit"])

    def _fit(self) -> None:
        """Fit the model to the samples before a suspected shift."""
        known = len(self._samples) - self._since_suspected
        busy = None if self._busy is None else self._busy.model
        self.model = LoadModel(list(self._samples)[:known], self._slope, busy)
        self._since_fit = 0

    def _detect(self, sample: LoadSample) -> list[tuple[float, float]]:
        if self.model is None:
            return []
        value = math.exp(self.model.surprise(sample, self.detector.level))
        found = []
        for since_s, change in self._adopted(self.detector.update(sample.time_s, value), sample):
            slack = self._slack(since_s, change, sample, self.model)
            series = self.detector.series
            if slack:
                series.rebase(series.level + slack, int(series.level_count))
            found.append((since_s, change + slack))
        found = found or self._extrapolated(sample, self.model)
        if found:
            self._since_shift, self._level = 0, self.detector.level
        return found or self._settled()

    def _settled(self) -> list[tuple[float, float]]:
        """Return by how much the last shift is larger, or smaller, than its first values showed.

        The level is estimated from few values at first, and follows those after them without a finding.
        """
        moved = self.detector.level - self._level
        is_recent = 0 < self._since_shift <= SETTLING and self._shifts
        if not is_recent or abs(moved) < SETTLED_SHARE * self.detector.settings.least_effect:
            return []
        self._level = self.detector.level
        return [(self._shifts[-1][0], moved)]

    def _extrapolated(self, sample: LoadSample, model: LoadModel) -> list[tuple[float, float]]:
        """Return the shift that the latest blocks show although load or mix was not observed before."""
        self._since_suspected = 0
        series = self.detector.series
        if series.profile is None:
            return []
        least = self.detector.settings.least_effect / 2
        latest = self._residuals(sample, model, LEAST_AFTER)
        if all(abs(residual.value) < least for residual in latest):
            return []
        residuals = self._residuals(sample, model, COMPARED)
        if not any(residual.is_unknown for residual in residuals[-JUDGED:]):
            return []
        found = most_likely_shift(residuals, model.uncertainty(series), JUDGED)
        if found is None or not found.is_certain:
            if found is not None and abs(found.errors) > SUSPECTED_ERRORS:
                self._since_suspected = sum(known.time_s >= found.since_s for known in residuals)
            return []
        return self._adopted(self.detector.adopt(found.since_s, found.shift), sample)

    def _adopted(
        self, findings: Sequence[Finding], sample: LoadSample
    ) -> list[tuple[float, float]]:
        """Return the shifts that the detector adopted at a sample.

        The monitor adds up what continues, or reverts, a shift that may be too small to be reported alone.
        """
        shifts = [(found.since_s, found.change) for found in findings if found.kind == "drift"]
        other = self.detector.unreported
        if other is not None and other.time_s == sample.time_s:
            shifts.append((other.since_s, other.shift))
        return shifts

    def _residuals(self, sample: LoadSample, model: LoadModel, count: int) -> list[Residual]:
        """Return what model and detector do not explain of the last samples since the last shift."""
        series, count = self.detector.series, min(count, self._since_shift)
        # Without a copy of all.
        latest = [self._samples[index] for index in range(1 - count, 0)]
        return [
            Residual(
                known.time_s,
                model.rest(known) + self._offset - series.expected(known.time_s),
                model.beyond(known),
                model.slack(known) > series.sigma_all,
            )
            for known in (*latest, _moved(sample, -self._offset))
            if not known.is_capped
        ]

    def _slack(self, since_s: float, change: float, sample: LoadSample, model: LoadModel) -> float:
        """Return by what a shift is expected to be larger than it is at least, by which it was detected."""
        since = [known for known in self._samples if known.time_s > since_s]
        return math.copysign(median(model.slack(known) for known in (*since, sample)), change)


def _moved(sample: LoadSample, change: float) -> LoadSample:
    return replace(sample, effort=sample.effort + change)
