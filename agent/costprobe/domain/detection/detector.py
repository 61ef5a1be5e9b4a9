"""The detector: persistent shifts and single outliers of one series, value by value.

The residual of the series model (`normal`) is scaled, clipped, and summed by three pairs of CUSUM
sums (Page, "Continuous inspection schemes", 1954) for small, medium and large changes, with
thresholds from Siegmund's approximation. Clipping keeps outliers from accumulating (Huber's psi).
A separate rule handles values beyond it: three values far from the level and close to each other are
a step, a single one is an anomaly.
"""

from __future__ import annotations

import math
from typing import Literal

from costprobe.core.clock_step import ClockStep
from costprobe.domain.detection import state
from costprobe.domain.detection.change_estimate import (
    LEVEL_VALUES,
    STEP_RUN,
    change_of,
    is_anomaly,
    tolerance_of,
)
from costprobe.domain.detection.change_filter import ChangeFilter, LevelChange
from costprobe.domain.detection.findings import DetectorSettings, Finding
from costprobe.domain.detection.normal import CLIP, NEVER_S, OUTLYING, SeriesModel
from costprobe.domain.detection.profile import DAY_S

TUNE_MASK = 31
CLIPPED_RATE = 1 / 200
REPEAT_RATE = 1 / 300
# In the first day the median of the last values is compared with that of the others every few values.
EARLY_EVERY = 4


class Detector:
    """Detect changes of one series: no clock, no I/O; the same values give the same findings.

    The first `warm_up` values give no findings. On the first day only large steps and anomalies are
    reported, because the daily pattern is unknown; a smaller step is detected on the second day.

    Args:
        settings: Sensitivity.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self.settings = settings
        self._normal, self._filter = SeriesModel(settings), ChangeFilter()
        # The last change that was adopted without a finding: it continues a ramp, or reverts a small change.
        self.unreported: LevelChange | None = None

    @classmethod
    def restore(cls, data: bytes) -> Detector:
        """Return a detector with the state of another one.

        Raises:
            ValueError: The bytes are not a state, or of another version.
        """
        normal, change_filter = state.unpack(data)
        detector = cls(normal.settings)
        detector._normal, detector._filter = normal, change_filter
        return detector

    def state(self) -> bytes:
        """Return the complete state; at most 16 KiB."""
        return state.pack(self._normal, self._filter)

    @property
    def level(self) -> float:
        """Logarithm of the current level; meaningless during the warm-up.

        A change may revert without a finding; this value shows it.
        """
        return self._normal.level

    @property
    def series(self) -> SeriesModel:
        """The model of the series."""
        return self._normal

    @property
    def last_s(self) -> float:
        """Time of the last value, UTC in s since 1970; far in the past before the first."""
        return self._normal.last_s

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants after a wall-clock step.

        Otherwise one value from a wall clock a year ahead would suppress all others for a year.
        """
        self._normal.clock_was_stepped(step)
        self._filter.clock_was_stepped(step)

    def update(self, time_s: float, value: float) -> list[Finding]:  # noqa: C901, PLR0912, PLR0915 - inlined: it runs for every value
        """Add the next value; return the findings that it completes.

        Args:
            time_s: UTC in s since 1970; a value not later than the last one is skipped.
            value: Any positive number; others are skipped.
        """
        normal = self._normal
        if not 0.0 < value < math.inf or time_s <= normal.last_s:
            return []
        x = math.log(value)
        findings = self._end_hour(time_s) if time_s >= normal.hour_ends_s else []
        profile = normal.profile
        if profile is None:
            return findings + self._update_early(time_s, x)
        if time_s - normal.last_s > normal.gap_s:
            normal.state, normal.run = 0.0, 0
        normal.last_s = time_s
        count = normal.count = normal.count + 1
        if not count & TUNE_MASK:
            normal.tune()
        level, sigma, phi, before = normal.level, normal.sigma, normal.phi, normal.state
        slot = int(time_s % DAY_S / profile.slot_s)
        usual = profile.values[slot]
        deviation = x - level
        bare = x - profile.weight * usual
        residual = bare - level
        normal.recent.append(bare)
        normal.repeats += REPEAT_RATE * ((x == normal.last_log) - normal.repeats)
        normal.last_log = x
        near = normal.near
        run = normal.run
        if residual > near:
            run = run + 1 if run > 0 else 1
        elif residual < -near:
            run = run - 1 if run < 0 else -1
        else:
            run = 0
        normal.run = run
        surprise = residual - phi * before
        scaled = surprise / sigma
        if not -OUTLYING < scaled < OUTLYING:
            # Outliers on one side in succession are no outliers: the sums decide on those that follow.
            normal.state = residual if abs(run) >= STEP_RUN else phi * before
            normal.clipped += CLIPPED_RATE * (1 - normal.clipped)
            limit = OUTLYING * sigma
            profile.values[slot] = usual + profile.gain * max(-limit, min(limit, deviation - usual))
            if is_anomaly(normal, residual, surprise):
                findings.append(self._finding("anomaly", time_s, time_s, x - residual, x))
            return findings + self._judge(time_s) if abs(run) >= STEP_RUN else findings
        week = normal.week
        week.total += bare
        week.count += 1
        if scaled > CLIP:
            scaled = CLIP
            normal.clipped += CLIPPED_RATE
        elif scaled < -CLIP:
            scaled = -CLIP
            normal.clipped += CLIPPED_RATE
        normal.clipped -= CLIPPED_RATE * normal.clipped
        missed = scaled * sigma
        moved = normal.state = phi * before + missed
        normal.scale += normal.scale_rate * (missed * missed - normal.scale)
        rate = normal.lag_rate
        normal.lag_product += rate * (moved * before - normal.lag_product)
        normal.lag_square += rate * (moved * moved - normal.lag_square)
        profile.values[slot] = usual + profile.gain * (deviation - usual)
        profile.product += deviation * usual
        profile.square += usual * usual
        k1, k2, k3, h1, h2, h3, calm = normal.bounds
        up1, up2, up3, down1, down2, down3 = normal.sums
        since_s = normal.since_s
        up1 += scaled - k1
        if up1 <= 0.0:
            up1 = 0.0
            since_s[0] = time_s
        up2 += scaled - k2
        if up2 <= 0.0:
            up2 = 0.0
            since_s[1] = time_s
        up3 += scaled - k3
        if up3 <= 0.0:
            up3 = 0.0
            since_s[2] = time_s
        down1 -= scaled + k1
        if down1 <= 0.0:
            down1 = 0.0
            since_s[3] = time_s
        down2 -= scaled + k2
        if down2 <= 0.0:
            down2 = 0.0
            since_s[4] = time_s
        down3 -= scaled + k3
        if down3 <= 0.0:
            down3 = 0.0
            since_s[5] = time_s
        normal.sums = (up1, up2, up3, down1, down2, down3)
        if up1 < calm and down1 < calm:
            normal.level = level + moved / normal.level_count
            if normal.level_count < self.settings.memory:
                normal.level_count += 1.0
        is_over = up1 > h1 or down1 > h1 or up2 > h2 or down2 > h2 or up3 > h3 or down3 > h3
        if is_over or run >= STEP_RUN or run <= -STEP_RUN:
            return findings + self._judge(time_s)
        return findings

    def _update_early(self, time_s: float, x: float) -> list[Finding]:
        """Add a value of the first day: a fast level, large steps, and anomalies."""
        normal = self._normal
        if not normal.begin(time_s, x):
            return []
        ended = normal.end_first_day()
        if ended is not None:
            return self._lasting_step(time_s, *ended)
        residual = x - normal.level
        side = (residual > normal.near) - (residual < -normal.near)
        normal.run = normal.run + side if normal.run * side > 0 else side
        is_wide = abs(residual) > CLIP * normal.sigma_all
        normal.clipped += CLIPPED_RATE * (is_wide - normal.clipped)
        findings = []
        if abs(residual) <= OUTLYING * normal.sigma_all:
            normal.follow(residual, x)
        elif is_anomaly(normal, residual, residual):
            findings.append(self._finding("anomaly", time_s, time_s, normal.level, x))
        if not normal.count & TUNE_MASK:
            normal.tune()
        if abs(normal.run) >= STEP_RUN or not normal.count % EARLY_EVERY:
            return findings + self._judge(time_s)
        return findings

    def _lasting_step(self, time_s: float, shift: float, since_s: float) -> list[Finding]:
        """Return the persistent shift of the first day unless it was reported."""
        step = LevelChange(time_s, since_s, self._normal.level, shift, is_sharp=True)
        before = self._filter.unreported_before(step, self._normal)
        if before is None:
            return []
        return [self._finding("drift", time_s, since_s, before, step.level)]

    def _end_hour(self, time_s: float) -> list[Finding]:
        normal = self._normal
        normal.end_hour(time_s)
        late = self._filter.overdue(time_s, normal)
        if late is None:
            return []
        return [self._finding("drift", time_s, late.since_s, late.level - late.shift, late.level)]

    def _judge(self, time_s: float) -> list[Finding]:
        """Confirm a suspected change, adopt its level, and return it if it is to be reported."""
        normal = self._normal
        change = change_of(normal, time_s)
        if change is None:
            return []
        tolerance = 0.0 if self._filter.continues_ramp(change) else tolerance_of(normal, change)
        if abs(change.shift) < self.settings.least_effect / 2 + tolerance:
            bounds = normal.bounds[3:6] * 2
            up1, up2, up3, down1, down2, down3 = (
                min(total, 1.5 * h) for total, h in zip(normal.sums, bounds, strict=True)
            )
            normal.sums = (up1, up2, up3, down1, down2, down3)
            return []
        return self._adopted(change)

    def adopt(self, since_s: float, shift: float) -> list[Finding]:
        """Adopt a shift that was found in another way; return it if it is to be reported.

        Args:
            since_s: Its start, UTC in s.
            shift: Difference of the logarithms of the levels.
        """
        normal = self._normal
        change = LevelChange(normal.last_s, since_s, normal.level + shift, shift, is_sharp=True)
        if abs(shift) < self.settings.least_effect / 2 + tolerance_of(normal, change):
            return []
        return self._adopted(change)

    def _adopted(self, change: LevelChange) -> list[Finding]:
        """Adopt the level of a change; return it if it is to be reported."""
        normal, time_s = self._normal, change.time_s
        findings = []
        if self._filter.is_new(change, normal):
            findings.append(
                self._finding(
                    "drift", time_s, change.since_s, change.level - change.shift, change.level
                )
            )
        elif self._filter.continues_ramp(change) or self._filter.is_retraction(change, normal):
            self.unreported = change
        if change.is_sharp:
            normal.week.explained += change.shift
        lasted = round((time_s - change.since_s) / normal.interval_s) + 1
        normal.rebase(change.level, max(3, min(lasted, LEVEL_VALUES)))
        if normal.profile is None:
            while len(normal.recent) > max(STEP_RUN, lasted):
                normal.recent.popleft()
        return findings

    def _finding(
        self,
        kind: Literal["drift", "anomaly"],
        time_s: float,
        since_s: float,
        before: float,
        after: float,
    ) -> Finding:
        began_s = max(since_s, self._normal.started_s, NEVER_S)
        return Finding(kind, time_s, began_s, math.exp(before), math.exp(after), after - before)
