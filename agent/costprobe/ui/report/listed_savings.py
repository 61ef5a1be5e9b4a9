"""Savings of a report: equal ones of several devices as one entry."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from costprobe.core.money_text import money
from costprobe.core.units import percent as share
from costprobe.domain.advice.savings import Answer, Supply
from costprobe.ui.report.grouping import devices_text
from costprobe.ui.savings import held_out_words, load_words

# "gpu0 and gpu1 and gpu2", as actions and workloads list devices.
_LISTED: Final = re.compile(r"\b[\w.]*\d(?: and [\w.]*\d){2,}\b")


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


def saving_groups(answers: Iterable[Answer]) -> list[ListedSaving]:
    """Return the best supply of each workload, the largest saving first."""
    groups: dict[tuple[str, ...], list[tuple[Answer, Supply]]] = defaultdict(list)
    for answer in answers:
        if answer.best is not None:
            saving = money(answer.best.saving_per_month, answer.currency)
            groups[_generic(answer, answer.best), saving].append((answer, answer.best))
    return [_listed(saving, found) for (_, saving), found in groups.items()]


def short(text: str) -> str:
    """Return a text with runs of devices as "gpu0 to gpu7"."""
    return _LISTED.sub(lambda match: devices_text(match[0].split(" and ")), text)


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
