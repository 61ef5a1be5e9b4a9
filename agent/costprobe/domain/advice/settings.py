"""Configuration of workloads: the model of a service or a device, or the expected load of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, model_validator

from costprobe.core.config.fields import Name, Section
from costprobe.core.config.weekly import WeeklyHoursConfig, check_each_applies
from costprobe.core.weekly_hours import HOURS_A_DAY, HOURS_A_WEEK

PerSecond = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class WorkloadHoursConfig(WeeklyHoursConfig):
    """Hours of the week with their own load; they may end on the next day."""

    per_s: PerSecond = Field(description="Inferences per second in these hours.", examples=[120.0])


class WorkloadConfig(Section):
    """The model of a service or a device, or the expected load of a model, for `costprobe savings`."""

    probe: Name = Field(description="Probe that measures the model.", examples=["ranker"])
    service: Name | None = Field(
        None, description="Service whose model the probe measures.", examples=["chat"]
    )
    as_device: Name | None = Field(
        None,
        description="Device whose utilization is the load of the model.",
        examples=["gpu0"],
    )
    per_s: PerSecond | None = Field(
        None,
        description="Expected inferences per second; with `hours`, in all other hours.",
        examples=[12.5],
    )
    per_s_by_hour: tuple[PerSecond, ...] = Field(
        (),
        max_length=HOURS_A_WEEK,
        description=(
            "Expected inferences per second in each hour of the day (24) or of the week (168, from"
            " Monday 00:00), in the same time zone."
        ),
        examples=[[2.0] * 8 + [40.0] * 12 + [2.0] * 4],
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
        purposes = (self.service, self.as_device, self.per_s, self.per_s_by_hour or None)
        if sum(purpose is not None for purpose in purposes) != 1:
            raise ValueError("give one of service, as_device, per_s and per_s_by_hour")
        if len(self.per_s_by_hour) not in (0, HOURS_A_DAY, HOURS_A_WEEK):
            given = len(self.per_s_by_hour)
            raise ValueError(f"per_s_by_hour has {given} values; write 24 or 168")
        if self.hours and self.per_s is None:
            raise ValueError("hours need per_s for the other hours; add it")
        check_each_applies(self.hours)
        return self

    @property
    def subject(self) -> tuple[str, str]:
        """What the load is of: a service, a device, or a probe's model; kind and name."""
        if self.service is not None:
            return "service", self.service
        return ("probe", self.probe) if self.as_device is None else ("device", self.as_device)

    @property
    def is_expected(self) -> bool:
        """Whether it states a load."""
        return self.per_s is not None or bool(self.per_s_by_hour)

    def profile(self) -> tuple[float, ...]:
        """Return the inferences per second by hour of the week, 0 = Monday 00:00."""
        if self.per_s_by_hour:
            return self.per_s_by_hour * (HOURS_A_WEEK // len(self.per_s_by_hour))
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
