"""Configuration of workloads: the expected load of a model, or the model of a service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, model_validator

from costprobe.core.config.fields import Name, Section
from costprobe.core.weekly_hours import WeeklyHoursConfig, check_each_applies
from costprobe.domain.advice.workload import HOURS_A_WEEK

PerSecond = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class WorkloadHoursConfig(WeeklyHoursConfig):
    """Hours of the week with their own load; they may end on the next day."""

    per_s: PerSecond = Field(description="Inferences per second in these hours.", examples=[120.0])


class WorkloadConfig(Section):
    """The model of a service, or the expected load of a probe's model, for `costprobe savings`."""

    probe: Name = Field(description="Probe that measures the model.", examples=["ranker"])
    service: Name | None = Field(
        None, description="Service whose model the probe measures.", examples=["chat"]
    )
    per_s: PerSecond | None = Field(
        None,
        description="Expected inferences per second; with `hours`, in all other hours.",
        examples=[12.5],
    )
    hours: tuple[WorkloadHoursConfig, ...] = Field(
        (),
        max_length=200,
        description=(
            "Hours with their own load, in the time zone of `[electricity]`, else the host's;"
            " the first match applies."
        ),
        examples=[[{"days": ["mon", "fri"], "start": "08:00", "end": "18:00", "per_s": 120.0}]],
    )

    @model_validator(mode="after")
    def _one_purpose(self) -> WorkloadConfig:
        if (self.service is None) == (self.per_s is None):
            raise ValueError("give service or per_s, one of the two")
        if self.hours and self.per_s is None:
            raise ValueError("hours need per_s for the other hours; add it")
        check_each_applies(self.hours)
        return self

    def profile(self) -> tuple[float, ...]:
        """Return the inferences per second by hour of the week, 0 = Monday 00:00."""
        minutes = [(hours.minutes(), hours.per_s) for hours in self.hours]
        return tuple(
            sum(
                _at(minute, minutes, self.per_s or 0.0)
                for minute in range(hour * 60, hour * 60 + 60)
            )
            / 60
            for hour in range(HOURS_A_WEEK)
        )


def _at(minute: int, hours: Sequence[tuple[set[int], float]], otherwise: float) -> float:
    return next((per_s for minutes, per_s in hours if minute in minutes), otherwise)
