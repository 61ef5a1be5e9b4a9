"""Advise hours of the week in which a device is idle and could be switched off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal

from costprobe.core.device_kinds import DEVICE_KINDS
from costprobe.core.money_text import money
from costprobe.core.units import HOUR_S, MONTH_H
from costprobe.core.weekly_hours import WEEKDAYS
from costprobe.domain.advice.device_history import DeviceHistory, Hour
from costprobe.domain.advice.hint import Hint, NoHint, in_cents
from costprobe.domain.advice.history import BY_THE_HOUR, History, days
from costprobe.domain.costing.money import exact
from costprobe.domain.pricing.book import Terms

KIND = "idle_hours"
HOURS_A_DAY, HOURS_A_WEEK = 24, 168
# Each hour of the week must be observed at least twice.
LEAST_WEEKS = 2
LEAST_DAYS = 14.0
# Restarting takes minutes: shorter runs are not worth it.
LEAST_RUN_H = 2


def advise(history: History) -> Iterator[Hint | NoHint]:
    """Find hours of the week in which devices were idle in every week.

    Devices that are rented as one host can only be switched off together.
    """
    together = {name for names in history.rented_together for name in names}
    only_host = all(device.device.is_host for device in history.devices.values())
    units = [*history.rented_together, *((name,) for name in history.devices)]
    for names in units:
        devices = [history.devices[name] for name in names if name in history.devices]
        # A slice cannot be switched off without its board, nor a CPU without its host's boards.
        chosen = [device for device in devices if device.device.is_board or only_host]
        if chosen and not (len(names) == 1 and names[0] in together):
            yield _of_unit(devices, history.zone)


def _of_unit(devices: Sequence[DeviceHistory], zone: tzinfo | None) -> Hint | NoHint:
    subject = " and ".join(device.name for device in devices)
    idle_by_hour = _idle_by_hour(devices)
    had = f"{days(len(idle_by_hour) / HOURS_A_DAY)} of utilization"
    if any(device.terms is None for device in devices):
        return NoHint(KIND, subject, "it has no price", had, "a price")
    span_h = max(idle_by_hour) - min(idle_by_hour) + 1 if idle_by_hour else 0
    if len(idle_by_hour) < LEAST_DAYS * HOURS_A_DAY:
        reason = "too little data for the hours of the week"
        return NoHint(KIND, subject, reason, had, f"{days(LEAST_DAYS)} of utilization")
    slots: dict[int, list[int]] = {}
    for number in idle_by_hour:
        slots.setdefault(hour_of_week(number, zone), []).append(number)
    idle = {
        slot
        for slot, numbers in slots.items()
        if len(numbers) >= LEAST_WEEKS and all(idle_by_hour[number] for number in numbers)
    }
    runs = [run for run in runs_of(idle) if run[1] >= LEAST_RUN_H]
    if not runs:
        reason = f"no {LEAST_RUN_H} consecutive hours were idle in every week"
        return NoHint(KIND, subject, reason, had)
    claimed = {(start + step) % HOURS_A_WEEK for start, length in runs for step in range(length)}
    numbers = [number for slot in claimed for number in slots[slot]]
    return _hint(devices, runs, numbers, span_h, had)


def _hint(
    devices: Sequence[DeviceHistory],
    runs: Sequence[tuple[int, int]],
    numbers: Sequence[int],
    span_h: int,
    had: str,
) -> Hint | NoHint:
    subject = " and ".join(device.name for device in devices)
    terms = [device.terms for device in devices if device.terms is not None]
    if len({term.rate.currency for term in terms}) > 1:
        return NoHint(
            KIND, subject, "its devices are priced in several currencies", had, "one currency"
        )
    # Hours in which it was off cost nothing and are not counted.
    hours = Decimal(len(numbers)) / span_h * MONTH_H
    per_hour = sum(
        (
            _saved_per_hour(device, term, numbers)
            for device, term in zip(devices, terms, strict=True)
        ),
        Decimal(0),
    )
    saving = in_cents(hours * per_hour)
    plans = sorted({term.rate.plan.replace("_", " ") for term in terms})
    if saving <= 0:
        reason = f"its hours are billed whether used or not ({', '.join(plans)})"
        return NoHint(KIND, subject, reason, had)
    most = max(device.hours[number].util_pct or 0.0 for device in devices for number in numbers)
    week_h = sum(length for _, length in runs)
    return Hint(
        kind=KIND,
        subject=subject,
        devices=tuple(device.name for device in devices),
        action=f"switch it off for {week_h} hours of the week: {described_runs(runs)}",
        saving_per_month=saving,
        currency=terms[0].rate.currency,
        evidence=(
            f"idle in these hours of every week; {len(numbers)} hours observed",
            f"utilization in them, without probes: at most {most:.2g} %, no request served",
            f"an hour off saves {money(per_hour, terms[0].rate.currency)} ({', '.join(plans)})",
        ),
        had=had,
        assumes=("no service must be available in these hours",),
    )


def _saved_per_hour(device: DeviceHistory, terms: Terms, numbers: Sequence[int]) -> Decimal:
    """Return the saving per hour off: hourly rent, and idle electricity."""
    rent = terms.rate.per_hour if terms.rate.plan in BY_THE_HOUR else Decimal(0)
    power_s = sum(device.hours[number].power_s for number in numbers)
    if not power_s:
        return rent
    power_w = sum(device.hours[number].energy_j for number in numbers) / power_s
    return rent + exact(terms.electricity_per_j * power_w * HOUR_S)


def _idle_by_hour(devices: Sequence[DeviceHistory]) -> dict[int, bool]:
    """Return whether all devices were idle, for each hour with data of all."""
    shared = set.intersection(*({*device.hours} for device in devices))
    idle = {}
    for number in sorted(shared):
        states = [_is_idle(device, device.hours[number]) for device in devices]
        if None not in states:
            idle[number] = all(states)
    return idle


def _is_idle(device: DeviceHistory, hour: Hour) -> bool | None:
    """Return whether a device was idle in an hour; None if unknown."""
    util_pct = hour.util_pct
    if util_pct is None:
        return None
    has_requests = hour.requests > 0 or hour.is_doubtful
    return util_pct < DEVICE_KINDS[device.device.kind].idle_hour_pct and not has_requests


def hour_of_week(number: int, zone: tzinfo | None) -> int:
    """Return the hour of the week (0 = Monday 00:00) of an hour number since 1970."""
    local = datetime.fromtimestamp(number * int(HOUR_S), UTC).astimezone(zone)
    return local.weekday() * HOURS_A_DAY + local.hour


def runs_of(slots: set[int]) -> list[tuple[int, int]]:
    """Return runs of consecutive hours as (first hour, length); Sunday wraps to Monday."""
    if len(slots) == HOURS_A_WEEK:
        return [(0, HOURS_A_WEEK)]
    runs = []
    for start in sorted(slots):
        if (start - 1) % HOURS_A_WEEK not in slots:
            length = 1
            while (start + length) % HOURS_A_WEEK in slots:
                length += 1
            runs.append((start, length))
    return runs


def described_runs(runs: Sequence[tuple[int, int]]) -> str:
    """Format runs of hours; runs at the same time of several days are merged."""
    if list(runs) == [(0, HOURS_A_WEEK)]:
        return "all of it"
    same: dict[tuple[int, int], list[int]] = {}
    for start, length in runs:
        day, hour = divmod(start, HOURS_A_DAY)
        same.setdefault((hour, length), []).append(day)
    return ", ".join(
        _described_run(days_of, hour, length) for (hour, length), days_of in same.items()
    )


def _described_run(weekdays: Sequence[int], hour: int, length: int) -> str:
    names: Mapping[int, str] = dict(enumerate(WEEKDAYS))
    first = " ".join(names[day] for day in weekdays)
    end_day, end_hour = divmod(hour + length, HOURS_A_DAY)
    if end_hour == 0:
        end_day, end_hour = end_day - 1, HOURS_A_DAY
    end = f"{end_hour:02}:00"
    if end_day and len(weekdays) == 1:
        end = f"{names[(weekdays[0] + end_day) % len(WEEKDAYS)]} {end}"
    elif end_day:
        end = f"{end} {end_day} day{'s' if end_day > 1 else ''} later"
    return f"{first} {hour:02}:00 to {end}"
