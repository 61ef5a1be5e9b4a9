"""`costprobe price what-if`: stored samples under other plans, batch sizes and devices."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path

import click
from pydantic import ValidationError

from costprobe.core.records import NS_PER_S, Device
from costprobe.domain.costing.comparison.what_if import (
    WhatIfSample,
    as_if,
    other_batches,
    samples_of,
    typical,
)
from costprobe.domain.pricing.assumed import assumed_rate
from costprobe.domain.pricing.book import TOGETHER, PriceBook
from costprobe.domain.pricing.plans.on_demand import OnDemandPlan
from costprobe.domain.pricing.plans.plan import Plan
from costprobe.domain.pricing.plans.reserved import ReservedPlan
from costprobe.ui.cli.support.discovery import discovered_devices
from costprobe.ui.cli.support.examples import ExampleCommand
from costprobe.ui.cli.support.loaded_config import LoadedConfig, bad_input, reader_of
from costprobe.ui.cli.support.name_completion import STORED_PROBES
from costprobe.ui.cli.support.plan_files import book_of_plans, name_of_plan, plans_of
from costprobe.ui.cli.support.price_books import known_spots, price_book
from costprobe.ui.cli.support.timespan import Moment
from costprobe.ui.cli.views.what_if_table import Alternative, compared, shown
from costprobe.ui.text import local

END_OF_TIME_NS = 2**63 - 1
ACTUAL = "actual"
LISTED = "list price (assumed)"
PERCENT = 100

Group = tuple[str, str]


@dataclass(frozen=True, slots=True)
class MeasuredSamples:
    """Stored samples of a time range.

    Attributes:
        groups: Runs by device and probe, oldest first.
        swept: Points of sweeps by device and probe, oldest first.
    """

    groups: Mapping[Group, list[WhatIfSample]]
    swept: Mapping[Group, list[WhatIfSample]]


@click.command(
    "what-if",
    cls=ExampleCommand,
    examples=(
        (
            "costprobe price what-if --reserved 1y=35%"
            "  # the measured cost with a reservation at 35 % off"
        ),
    ),
)
@click.option("--since", "since_ns", type=Moment(), default="30d", show_default=True)
@click.option(
    "--plans",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="TOML file of [[price]] tables; each is compared separately.",
)
@click.option(
    "--reserved",
    "reservations",
    multiple=True,
    help="A reservation of the on-demand price, as TERM=DISCOUNT: 1y=35%. May be repeated.",
)
@click.option("--probe", shell_complete=STORED_PROBES, help="Only this probe.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.pass_obj
def command(
    config: str | None,
    *,
    since_ns: int,
    file: Path | None,
    reservations: Sequence[str],
    probe: str | None,
    as_json: bool,
) -> None:
    """Price the stored samples under other plans, each for the whole time.

    Besides the plans in force it compares every plan of the configuration, those of --plans and
    --reserved, and the assumed list price; the other batch sizes that runs or a sweep have
    measured; and devices of another kind that the same probe ran on, such as the CPU. Samples that
    cannot be priced are counted, never extrapolated.
    """
    settings = LoadedConfig(config)
    measured = _past(settings, since_ns, probe)
    if not measured.groups:
        raise click.ClickException(f"no sample since {local(since_ns)}; is the daemon running?")
    devices = discovered_devices(settings.config.telemetry)
    names = {device.name for device in devices}
    groups = {
        group: samples
        for group, samples in measured.groups.items()
        if set(group[0].split(TOGETHER)) <= names
    }
    if not groups:
        raise click.ClickException("no sample is from a device that this host has now")
    measured = MeasuredSamples(groups, measured.swept)
    plans = _Plans(settings, devices, min(samples[0].time_ns for samples in groups.values()))
    alternatives = plans.alternatives(file, reservations)
    priced = [
        compared(group, samples, [*alternatives, *_other_ways(group, measured, plans)])
        for group, samples in groups.items()
    ]
    click.echo(json.dumps(priced) if as_json else "\n\n".join(shown(entry) for entry in priced))


def _past(settings: LoadedConfig, since_ns: int, probe: str | None) -> MeasuredSamples:
    tags = {"probe": probe} if probe else None
    with reader_of(settings) as reader:
        runs = samples_of(reader.points("probe", since_ns, END_OF_TIME_NS, tags))
        swept = samples_of(reader.points("sweep", 0, END_OF_TIME_NS, tags))
    return MeasuredSamples(_grouped(runs), _grouped(swept))


def _grouped(samples: Sequence[WhatIfSample]) -> dict[Group, list[WhatIfSample]]:
    groups: dict[Group, list[WhatIfSample]] = {}
    for sample in samples:
        groups.setdefault((sample.device, sample.probe), []).append(sample)
    return groups


class _Plans:
    """The price books to compare.

    Args:
        settings: The configuration.
        devices: The devices of this host.
        first_ns: UTC ns of the first sample, from which each plan is assumed to apply.
    """

    def __init__(self, settings: LoadedConfig, devices: Sequence[Device], first_ns: int) -> None:
        self._config = settings.config
        self._devices = devices
        self._spots = known_spots(settings)
        self._began = datetime.fromtimestamp(first_ns // NS_PER_S, tz=UTC).date()
        self._cpus = os.cpu_count() or 1
        self.kinds = {device.name: device.kind for device in devices}
        self.actual = price_book(settings, devices)
        self.listed = PriceBook([], self._config.electricity, devices, self._cpus)

    def alternatives(self, file: Path | None, reservations: Sequence[str]) -> list[Alternative]:
        """Return the plans in force, then every plan on its own, then the list price."""
        plans = [*self._config.price, *(plans_of(file) if file else [])]
        alternatives = [Alternative(ACTUAL, self.actual)]
        for plan in plans:
            always = plan.plan in ("reserved", "owned")
            alternatives.append(
                Alternative(name_of_plan(plan), self._book([plan]), is_always_paid=always)
            )
        for text in reservations:
            term, discount = _reservation(text)
            book = self._book(self._reserved(plans, term, discount))
            name = f"reserved {term} at {(discount * PERCENT).normalize():f} % off"
            alternatives.append(Alternative(name, book, is_always_paid=True))
        return [*alternatives, Alternative(LISTED, self.listed)]

    def _book(self, plans: Sequence[Plan]) -> PriceBook:
        electricity = self._config.electricity
        return book_of_plans(plans, electricity, self._devices, self._began, self._spots)

    def _reserved(self, plans: Sequence[Plan], term: str, discount: Decimal) -> list[Plan]:
        """Return reservations of the on-demand plans; of the list price if there are none."""
        rented = {
            (plan.device, plan.unit): plan
            for plan in sorted(plans, key=lambda plan: plan.valid_from)
            if isinstance(plan, OnDemandPlan)
        }
        keys = {"plan": "reserved", "term": term, "discount": discount, "valid_from": self._began}
        if rented:
            rented_keys = (
                plan.model_dump(exclude={"plan", "valid_from"}) for plan in rented.values()
            )
            return [_taken({**plan_keys, **keys}) for plan_keys in rented_keys]
        return [
            _taken(
                {
                    **keys,
                    "device": device.name,
                    "per_hour": assumed_rate(device, self._cpus).per_hour,
                }
            )
            for device in self._devices
        ]


def _other_ways(group: Group, measured: MeasuredSamples, plans: _Plans) -> list[Alternative]:
    """Return other batch sizes on the same device, and devices of another kind."""
    device, probe = group
    samples = measured.groups[group]
    alternatives = [
        Alternative(f"batch {other.batch}", plans.actual, samples=as_if(samples, other))
        for other in other_batches(samples, measured.swept.get(group, []))
    ]
    for (other_device, other_probe), others in measured.groups.items():
        if other_probe != probe or plans.kinds.get(other_device) == plans.kinds.get(device):
            continue
        estimate = as_if(samples, typical(others))
        is_priced = plans.actual.terms(other_device, samples[-1].time_ns) is not None
        book, words = (plans.actual, "") if is_priced else (plans.listed, f", {LISTED}")
        alternatives.append(Alternative(f"on {other_device}{words}", book, samples=estimate))
    return alternatives


def _reservation(text: str) -> tuple[str, Decimal]:
    """Parse term and discount, such as "1y=35%" or "1y=0.35"."""
    term, _, share = text.partition("=")
    try:
        discount = Decimal(share.strip().removesuffix("%"))
    except InvalidOperation as error:
        raise bad_input(f"--reserved {text}: write TERM=DISCOUNT, such as 1y=35%") from error
    return term.strip(), discount / PERCENT if share.strip().endswith("%") else discount


def _taken(keys: Mapping[str, object]) -> ReservedPlan:
    try:
        return ReservedPlan.model_validate(keys)
    except ValidationError as error:
        detail = error.errors()[0]
        where = ".".join(str(part) for part in detail["loc"])
        raise bad_input(f"--reserved: {where}: {detail['msg']}") from error
