"""`infercost price what-if`: the samples of the past under other plans and in other ways."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path

import click
from pydantic import TypeAdapter, ValidationError

from agent.cli.books import book_of, known_spots
from agent.cli.completing import STORED_PROBES
from agent.cli.discovery import discovered_devices
from agent.cli.settings import Settings, bad_input, reader_of
from agent.cli.timespan import Moment, local
from agent.cli.what_if_table import Alternative, compared, shown
from agent.config_price import ElectricityConfig, OnDemandPlanConfig, PlanConfig, ReservedPlanConfig
from agent.costing.what_if import Sample, as_if, other_batches, samples_of, typical
from agent.model import NS_PER_S, Device
from agent.pricing.assumed import assumed_rate
from agent.pricing.book import TOGETHER, PriceBook
from agent.pricing.spot import Spots

MAX_FILE_BYTES = 1 << 20
END_OF_TIME_NS = 2**63 - 1
ACTUAL = "as it was"
LISTED = "list price (assumed)"
PERCENT = 100

Group = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Past:
    """What was measured.

    Attributes:
        groups: Runs by device and probe, oldest first.
        swept: Points of sweeps by device and probe, oldest first.
    """

    groups: Mapping[Group, list[Sample]]
    swept: Mapping[Group, list[Sample]]


@click.command("what-if")
@click.option("--since", "since_ns", type=Moment(), default="30d", show_default=True)
@click.option(
    "--plans",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A TOML file of [[price]] tables; each is looked at by itself.",
)
@click.option(
    "--reserved",
    "reservations",
    multiple=True,
    help="A reservation of the on-demand price, as TERM=DISCOUNT: 1y=35%. May be given several times.",
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
    """Prices the stored samples as if other plans had held, each for the whole time.

    Besides what was in force it looks at every plan of the configuration, at those of --plans and
    --reserved, and at the assumed list price; at the other batch sizes that runs or a sweep have
    measured; and at devices of another kind that the same probe ran on, such as the CPU. What cannot be
    priced is counted and not guessed.
    """
    settings = Settings(config)
    past = _past(settings, since_ns, probe)
    if not past.groups:
        raise click.ClickException(f"no sample since {local(since_ns)}; is the daemon running?")
    devices = discovered_devices(settings.config.telemetry)
    known = {device.name for device in devices}
    groups = {
        group: of for group, of in past.groups.items() if set(group[0].split(TOGETHER)) <= known
    }
    if not groups:
        raise click.ClickException("no sample is of a device that this host has now")
    past = Past(groups, past.swept)
    plans = _Plans(settings, devices, min(of[0].time_ns for of in groups.values()))
    alternatives = plans.alternatives(file, reservations)
    found = [
        compared(group, of, [*alternatives, *_other_ways(group, past, plans)])
        for group, of in groups.items()
    ]
    click.echo(json.dumps(found) if as_json else "\n\n".join(shown(entry) for entry in found))


def _past(settings: Settings, since_ns: int, probe: str | None) -> Past:
    tags = {"probe": probe} if probe else None
    with reader_of(settings) as reader:
        runs = samples_of(reader.points("probe", since_ns, END_OF_TIME_NS, tags))
        swept = samples_of(reader.points("sweep", 0, END_OF_TIME_NS, tags))
    return Past(_grouped(runs), _grouped(swept))


def _grouped(samples: Sequence[Sample]) -> dict[Group, list[Sample]]:
    groups: dict[Group, list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.device, sample.probe), []).append(sample)
    return groups


class _Plans:
    """The price books to look at the past with.

    Args:
        settings: The configuration.
        devices: The devices of this host.
        first_ns: UTC ns of the first sample, from which each plan is taken to hold.
    """

    def __init__(self, settings: Settings, devices: Sequence[Device], first_ns: int) -> None:
        self._config = settings.config
        self._devices = devices
        self._spots = known_spots(settings)
        self._began = datetime.fromtimestamp(first_ns // NS_PER_S, tz=UTC).date()
        self._cpus = os.cpu_count() or 1
        self.kinds = {device.name: device.kind for device in devices}
        self.actual = book_of(settings, devices)
        self.listed = PriceBook([], self._config.electricity, devices, self._cpus)

    def alternatives(self, file: Path | None, reservations: Sequence[str]) -> list[Alternative]:
        """What was in force, then every plan by itself, then the list price."""
        plans = [*self._config.price, *(plans_of(file) if file else [])]
        found = [Alternative(ACTUAL, self.actual)]
        for plan in plans:
            always = plan.plan in ("reserved", "owned")
            found.append(Alternative(name_of_plan(plan), self._book([plan]), is_always_paid=always))
        for text in reservations:
            term, discount = _reservation(text)
            book = self._book(self._reserved(plans, term, discount))
            name = f"reserved {term} at {(discount * PERCENT).normalize():f} % off"
            found.append(Alternative(name, book, is_always_paid=True))
        return [*found, Alternative(LISTED, self.listed)]

    def _book(self, plans: Sequence[PlanConfig]) -> PriceBook:
        electricity = self._config.electricity
        return book_of_plans(plans, electricity, self._devices, self._began, self._spots)

    def _reserved(
        self, plans: Sequence[PlanConfig], term: str, discount: Decimal
    ) -> list[PlanConfig]:
        """A reservation of what is rented on demand; of the list price where nothing is."""
        rented = {
            (plan.device, plan.of_what): plan
            for plan in sorted(plans, key=lambda plan: plan.valid_from)
            if isinstance(plan, OnDemandPlanConfig)
        }
        keys = {"plan": "reserved", "term": term, "discount": discount, "valid_from": self._began}
        if rented:
            own = (plan.model_dump(exclude={"plan", "valid_from"}) for plan in rented.values())
            return [_taken({**one, **keys}) for one in own]
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


def _other_ways(group: Group, past: Past, plans: _Plans) -> list[Alternative]:
    """Other batches on the same device, and devices of another kind."""
    device, probe = group
    samples = past.groups[group]
    found = [
        Alternative(f"batch {other.batch}", plans.actual, samples=as_if(samples, other))
        for other in other_batches(samples, past.swept.get(group, []))
    ]
    for (other_device, other_probe), others in past.groups.items():
        if other_probe != probe or plans.kinds.get(other_device) == plans.kinds.get(device):
            continue
        taken = as_if(samples, typical(others))
        is_priced = plans.actual.terms(other_device, samples[-1].time_ns) is not None
        book, words = (plans.actual, "") if is_priced else (plans.listed, f", {LISTED}")
        found.append(Alternative(f"on {other_device}{words}", book, samples=taken))
    return found


def plans_of(file: Path) -> list[PlanConfig]:
    """The [[price]] tables of a file.

    Raises:
        click.ClickException: It holds none that can be used.
    """
    try:
        content = file.read_bytes()[:MAX_FILE_BYTES]
        tables = tomllib.loads(content.decode(), parse_float=Decimal).get("price", [])
        return TypeAdapter(list[PlanConfig]).validate_python(tables)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise bad_input(f"{file}: is no valid TOML: {error}") from error
    except ValidationError as error:
        detail = error.errors()[0]
        where = ".".join(str(part) for part in detail["loc"])
        raise bad_input(f"{file}: price.{where}: {detail['msg']}") from error


def _reservation(text: str) -> tuple[str, Decimal]:
    """Term and discount of "1y=35%" or "1y=0.35"."""
    term, _, share = text.partition("=")
    try:
        discount = Decimal(share.strip().removesuffix("%"))
    except InvalidOperation as error:
        raise bad_input(f"--reserved {text}: write TERM=DISCOUNT, such as 1y=35%") from error
    return term.strip(), discount / PERCENT if share.strip().endswith("%") else discount


def book_of_plans(
    plans: Sequence[PlanConfig],
    electricity: ElectricityConfig | None,
    devices: Sequence[Device],
    began: date,
    spots: Spots,
) -> PriceBook:
    """A book in which plans hold from a day on, whenever they really began."""
    held = [plan.model_copy(update={"valid_from": began}) for plan in plans]
    return PriceBook(held, electricity, devices, spots=lambda: spots)


def _taken(keys: Mapping[str, object]) -> ReservedPlanConfig:
    try:
        return ReservedPlanConfig.model_validate(keys)
    except ValidationError as error:
        detail = error.errors()[0]
        where = ".".join(str(part) for part in detail["loc"])
        raise bad_input(f"--reserved: {where}: {detail['msg']}") from error


def name_of_plan(plan: PlanConfig) -> str:
    """A plan in words."""
    began: date = plan.valid_from
    return f"{plan.plan.replace('_', ' ')} of {began}"
