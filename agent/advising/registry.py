"""Who advises: a kind of hint is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from agent.advising import batch, cpu_instead, idle_hours, mig_slice, reserved
from agent.advising.hint import Hint, Unsaid
from agent.advising.history import History

Advisor = Callable[[History], Iterable[Hint | Unsaid]]

ADVISORS: Mapping[str, Advisor] = {
    batch.KIND: batch.advise,
    idle_hours.KIND: idle_hours.advise,
    mig_slice.KIND: mig_slice.advise,
    reserved.KIND: reserved.advise,
    cpu_instead.KIND: cpu_instead.advise,
}


def advice(history: History) -> tuple[list[Hint], list[Unsaid]]:
    """What all advisors say of a past: hints, the largest saving first, and why there is none."""
    hints: list[Hint] = []
    unsaid: list[Unsaid] = []
    for advise in ADVISORS.values():
        for found in advise(history):
            if isinstance(found, Hint):
                hints.append(found)
            else:
                unsaid.append(found)
    hints.sort(key=lambda hint: (hint.currency, -hint.saving_per_month, hint.kind, hint.subject))
    return hints, unsaid
