"""A service level: the same table for probes of servers, and for services in production."""

from __future__ import annotations

from typing import Any, Final

from pydantic import model_validator

from costprobe.core.config.fields import Duration, Section, key

_TIMES: Final = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "latency": "time of a whole request",
}


def _bound(name: str, example: str) -> Any:
    """Return the field of a bound, such as ttft_p90."""
    figure, _, percentile = name.partition("_p")
    place = "Median" if percentile == "50" else f"{percentile}th percentile of the"
    return key(name, None, description=f"{place} {_TIMES[figure]}.", examples=[example])


class SloConfig(Section):
    """A service level: the longest times of a good answer, each at a percentile of the requests."""

    ttft_p50_s: Duration | None = _bound("ttft_p50", "200ms")
    ttft_p90_s: Duration | None = _bound("ttft_p90", "500ms")
    ttft_p99_s: Duration | None = _bound("ttft_p99", "2s")
    tpot_p50_s: Duration | None = _bound("tpot_p50", "30ms")
    tpot_p90_s: Duration | None = _bound("tpot_p90", "50ms")
    tpot_p99_s: Duration | None = _bound("tpot_p99", "100ms")
    latency_p50_s: Duration | None = _bound("latency_p50", "3s")
    latency_p90_s: Duration | None = _bound("latency_p90", "8s")
    latency_p99_s: Duration | None = _bound("latency_p99", "20s")

    @model_validator(mode="after")
    def _has_a_bound(self) -> SloConfig:
        if not self.bounds_ms:
            raise ValueError('slo has no bound; write one such as ttft_p90 = "500ms"')
        return self

    @property
    def bounds_ms(self) -> dict[str, float]:
        """The bounds in ms by the names of the figures: "ttft_p90"."""
        values: dict[str, float] = self.model_dump(exclude_none=True)
        return {name.removesuffix("_s"): value * 1000 for name, value in values.items()}
