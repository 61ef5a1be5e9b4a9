"""The table of advisors: a new kind of hint is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from costprobe.domain.advice import batch, cpu_instead, idle_hours, mig_slice, reserved
from costprobe.domain.advice.hint import Hint, NoHint
from costprobe.domain.advice.history import History

Advisor = Callable[[History], Iterable[Hint | NoHint]]

ADVISORS: Mapping[str, Advisor] = {
    batch.KIND: batch.advise,
    idle_hours.KIND: idle_hours.advise,
    mig_slice.KIND: mig_slice.advise,
    reserved.KIND: reserved.advise,
    cpu_instead.KIND: cpu_instead.advise,
}


def advice(history: History) -> tuple[list[Hint], list[NoHint]]:
    """Return the hints of all advisors, the largest saving first, and the reasons for no hint."""
    hints: list[Hint] = []
    no_hints: list[NoHint] = []
    for advise in ADVISORS.values():
        for result in advise(history):
            if isinstance(result, Hint):
                hints.append(result)
            else:
                no_hints.append(result)
    hints.sort(key=lambda hint: (hint.currency, -hint.saving_per_month, hint.kind, hint.subject))
    return hints, no_hints
