"""What a kind of rule is, and how its symptoms are called."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any, Protocol, TypeVar

from agent.alert import Fault, Symptom
from agent.calendar_step import CalendarStep
from agent.model import Event, Point

# A rule follows so many series; of more, those that were silent for longest are forgotten.
MAX_SERIES = 2000
SERIES_TAGS = ("device", "probe", "service", "sink", "notifier", "budget")

Labels = tuple[tuple[str, str], ...]
Value = TypeVar("Value")


class Evaluator(Protocol):
    """One rule at work: it remembers what it must and says which symptoms there are.

    It is given only what the rule's `match` lets through.
    """

    def observe(self, point: Point) -> None:
        """Takes a row of a series that the rule looks at."""
        ...

    def notice(self, event: Event) -> None:
        """Takes a drift or an anomaly."""
        ...

    def symptoms(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:
        """What is wrong at a UTC ns."""
        ...

    def clock_was_stepped(self, step: CalendarStep) -> None:
        """Goes on behind a step of the calendar."""
        ...

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """What the rule remembers, as JSON."""
        ...

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Goes on from a document.

        Raises:
            KeyError, TypeError, ValueError: It is damaged.
        """
        ...


def labels_of(tags: Mapping[str, str]) -> Labels:
    """The tags that tell a rule's series apart; the batch of a probe does not."""
    return tuple((name, tags[name]) for name in SERIES_TAGS if tags.get(name))


def where(labels: Labels) -> str:
    """A series' place in words: " of encoder on gpu0", " of gpu0"."""
    named = dict(labels)
    device = named.pop("device", "")
    others = " ".join(named.values())
    if others:
        return f" of {others} on {device}" if device else f" of {others}"
    return f" of {device}" if device else ""


class Series(OrderedDict[Labels, Value]):
    """What is known of each series; the oldest goes where there are too many."""

    def keep(self, labels: Labels, value: Value) -> None:
        """Sets a series' value and makes it the youngest."""
        self[labels] = value
        self.move_to_end(labels)
        while len(self) > MAX_SERIES:
            self.popitem(last=False)
