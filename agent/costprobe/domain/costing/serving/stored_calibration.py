"""A calibration of a service as a row, and whether it still applies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costprobe.core.records import FieldValue, Point
from costprobe.core.row_values import number
from costprobe.core.schema import make_point
from costprobe.domain.costing.serving.calibration import (
    Calibration,
    LengthMix,
    TokenTimes,
    times_of,
)
from costprobe.domain.costing.serving.nonnegative_fit import ConfidenceInterval

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class StoredCalibration:
    """The newest calibration of a service.

    Attributes:
        times: Device-seconds of its tokens.
        time_ns: UTC in ns of the measurement.
        probe: The probe that measured it.
        fingerprint: That of the probe's server and model then.
        in_flight: Requests in flight.
    """

    times: TokenTimes
    time_ns: int
    probe: str
    fingerprint: str
    in_flight: int

    def is_stale(self, fingerprint: str | None) -> bool:
        """Return whether server or model have changed since.

        Args:
            fingerprint: That of the newest run of the probe; None if there is none.
        """
        return fingerprint is not None and fingerprint != self.fingerprint


def calibration_point(
    found: Calibration,
    tags: Mapping[str, str],
    time_ns: int,
    *,
    in_flight: int,
    windows: int,
    fingerprint: str,
) -> Point:
    """Return the row of a calibration.

    Args:
        found: The calibration.
        tags: `service`, `probe`, `device`, host and static labels.
        time_ns: UTC in ns of its end.
        in_flight: Requests in flight.
        windows: Measured windows.
        fingerprint: That of a run of the probe as configured.
    """
    times = found.times
    fields: dict[str, FieldValue | None] = {
        "prompt_s": times.prompt_s,
        "token_in_s": times.token_in_s,
        "token_out_s": times.token_out_s,
        "context_token_s": times.context_token_s,
        "tokens_in": float(times.mix.tokens_in),
        "tokens_out": float(times.mix.tokens_out),
        "in_flight": in_flight,
        "windows": windows,
        "fingerprint": fingerprint,
        **_interval("time", "in", "s", found.token_in_s),
        **_interval("time", "out", "s", found.token_out_s),
        **_interval("energy", "in", "j", found.token_in_j),
        **_interval("energy", "out", "j", found.token_out_j),
    }
    return make_point("calibration", tags, fields, time_ns)


def _interval(
    what: str, kind: str, unit: str, found: ConfidenceInterval | None
) -> dict[str, FieldValue]:
    if found is None:
        return {}
    name = f"{what}_per_million_tokens_{kind}"
    return {
        f"{name}_{unit}": found.value * MILLION,
        f"{name}_low_{unit}": found.low * MILLION,
        f"{name}_high_{unit}": found.high * MILLION,
    }


def stored_calibration(row: Point) -> StoredCalibration | None:
    """Return the calibration of a row; None if it lacks a value, as one of another version may."""
    names = ("prompt_s", "token_in_s", "token_out_s", "context_token_s", "tokens_in", "tokens_out")
    values = [value for name in names if (value := number(row, name)) is not None and value >= 0]
    in_flight, fingerprint = number(row, "in_flight"), row.fields.get("fingerprint")
    if len(values) < len(names) or in_flight is None or min(values[4:]) <= 0:
        return None
    if sum(values[:2]) <= 0 or sum(values[2:4]) <= 0:
        return None
    return StoredCalibration(
        times_of(values[:4], LengthMix(values[4], values[5])),
        row.time_ns,
        row.tags.get("probe", ""),
        str(fingerprint or ""),
        int(in_flight),
    )
