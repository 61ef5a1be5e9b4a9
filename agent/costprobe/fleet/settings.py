"""The section [fleet] with [fleet.watch]: what `costprobe fleet watch` checks, and how often."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from pydantic import Field, model_validator

from costprobe.adapters.databases.question import FleetConfig
from costprobe.core.config.fields import Duration, Labels, Name, Section, Share, key
from costprobe.spend.settings import PlannedSpend


class FleetBudgetConfig(PlannedSpend):
    """Money planned for the devices of the fleet in a calendar period."""

    labels: Labels = Field(
        default_factory=dict,
        description="Only devices of hosts with these labels.",
        examples=[{"team": "search"}],
    )


class FleetWatchConfig(Section):
    """What `costprobe fleet watch` checks, and how often."""

    removed: ClassVar = {
        "analyze_every": "budgets, outliers and drift are checked once an hour",
        "drift_window": "the cost of six hours is compared",
        "forget_after": "a host without a row for seven days no longer belongs to the fleet",
        "outliers_period": "GPUs are compared over seven days",
    }

    every_s: Duration = key(
        "every",
        300.0,
        ge=1,
        description=(
            "Time between two checks for silent hosts; after three without a sign of the active"
            " watcher another one takes over."
        ),
    )
    outliers: bool = Field(True, description="Whether to look for outliers among the GPUs.")
    within: tuple[Name, ...] = Field(
        (),
        max_length=8,
        description="Labels within whose values GPUs are compared, such as a cooling row.",
        examples=[["rack"]],
    )
    drift_at_least: Share = Field(
        0.05,
        description=(
            "Least change of the cost per inference of most hosts that is reported as drift of"
            " the fleet."
        ),
        examples=["5%"],
    )
    budget: tuple[FleetBudgetConfig, ...] = Field(
        (),
        max_length=64,
        description="Budgets of the fleet.",
        examples=[[{"name": "gpus", "amount": 250000, "period": "month"}]],
    )

    @model_validator(mode="after")
    def _names_are_unique(self) -> FleetWatchConfig:
        for name, number in Counter(budget.name for budget in self.budget).items():
            if number > 1:
                raise ValueError(f"budget {name!r} is there twice; give each a unique name")
        return self


class FleetSection(FleetConfig):
    """The database with the rows of all hosts, for `costprobe fleet`."""

    watch: FleetWatchConfig | None = Field(
        None,
        description="What `costprobe fleet watch` checks.",
        examples=[{"every": "5m"}],
    )

    @property
    def watched(self) -> FleetWatchConfig:
        """What is checked, with the defaults where nothing is configured."""
        return self.watch or FleetWatchConfig()
