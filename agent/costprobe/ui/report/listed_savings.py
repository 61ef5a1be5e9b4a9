"""Savings of a report: equal ones of several devices as one entry."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from costprobe.core.money import money
from costprobe.core.units import percent as share
from costprobe.savings.load import LoadCost, LoadPosition
from costprobe.savings.savings import Answer, Supply
from costprobe.ui.load_position import position_lines
from costprobe.ui.savings import held_out_words, load_words
from costprobe.ui.text import devices_text, short


@dataclass(frozen=True, slots=True)
class ListedSaving:
    """A saving, or the same one of several workloads, as text.

    Attributes:
        title: Workloads and what to do.
        saving: Money a month.
        facts: Load, result on held-out weeks and assumptions; for several workloads what all share.
    """

    title: str
    saving: str
    facts: Sequence[str]


def saving_groups(answers: Sequence[Answer]) -> list[ListedSaving]:
    """Return the best supply of each workload, the largest saving first.

    What the load of a service costs against its load curve is among the facts; without a cheaper
    supply it is an entry of its own.
    """
    groups: dict[tuple[str, ...], list[tuple[Answer, Supply]]] = defaultdict(list)
    alone = []
    for answer in answers:
        if answer.best is not None:
            saving = money(answer.best.saving_per_month, answer.currency)
            own = "" if answer.load is None else answer.workload.name
            groups[_generic(answer, answer.best), saving, own].append((answer, answer.best))
        elif answer.load is not None and answer.load.cost is not None:
            alone.append(_of_load(answer, answer.load, answer.load.cost))
    return [*(_listed(saving, found) for (_, saving, _), found in groups.items()), *alone]


def _of_load(answer: Answer, position: LoadPosition, cost: LoadCost) -> ListedSaving:
    """Return what the load of a service costs against its load curve."""
    month = f"{money(cost.cost_per_month, answer.currency)} a month"
    facts = [short(line) for line in position_lines(position, answer.currency)]
    if cost.merge is None:
        unused = money(cost.unused_per_month, answer.currency)
        title = f"{answer.workload.name}: use its idle capacity"
        return ListedSaving(short(title), f"up to {unused} of {month}", facts)
    replicas = f"{position.evidence.replicas} replicas into {cost.merge.replicas}"
    saving = money(cost.merge.saving_per_month, answer.currency)
    title = f"{answer.workload.name}: merge {replicas}"
    return ListedSaving(short(title), f"{saving} of {month}", facts)


def _generic(answer: Answer, best: Supply) -> str:
    """Return the action without the names of the workload's own devices."""
    action = best.action
    for name in answer.workload.devices:
        action = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.])", "*", action)
    return action


def _listed(saving: str, found: Sequence[tuple[Answer, Supply]]) -> ListedSaving:
    answer, best = found[0]
    now = "" if answer.now is None else f" of {money(answer.now.cost_per_month, answer.currency)}"
    if len(found) == 1:
        facts = [f"load: {load_words(answer.workload)}"]
        facts += [] if best.held_out is None else [held_out_words(best.held_out)]
        facts += [f"if {line}" for line in best.assumptions]
        if answer.load is not None:
            facts += position_lines(answer.load, answer.currency)
        title = f"{answer.workload.name}: {best.action}"
        return ListedSaving(short(title), f"{saving}{now} a month", [short(line) for line in facts])
    shared = [line for line in best.assumptions if all(line in b.assumptions for _, b in found)]
    loads = [a.workload.mean / len(a.workload.devices) for a, _ in found]
    devices = {name for each, _ in found for name in each.workload.devices}
    return ListedSaving(
        f"{short(_together(found))}: {_generic(answer, best).replace('*', 'the same device')}",
        f"{saving}{now} a month for each of {devices_text(devices)}",
        [
            f"load: {share(min(loads))} to {share(max(loads))} busy",
            *(f"if {line}" for line in shared),
        ],
    )


def _together(found: Sequence[tuple[Answer, Supply]]) -> str:
    """Return the names of workloads, each model with its devices."""
    devices: dict[str, list[str]] = defaultdict(list)
    for answer, _ in found:
        model, _, _ = answer.workload.name.partition(" on ")
        devices[model] += answer.workload.devices
    return ", ".join(f"{model} on {devices_text(names)}" for model, names in devices.items())
