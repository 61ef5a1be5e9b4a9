"""The contract of an alert rule, and the measurement and field that it compares.

Measurement and field are checked against the series schema.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, Field

from costprobe.core.config.fields import Label, Match, Name, Pause, Section, key
from costprobe.core.incident import Fault, Symptom
from costprobe.core.outside import nearest
from costprobe.core.records import NS_PER_S, Point, Severity
from costprobe.core.schema import SCHEMA


def _known_measurement(name: str) -> str:
    if name not in SCHEMA:
        raise ValueError(f"write one of {', '.join(SCHEMA)}")
    return name


MeasurementName = Annotated[Name, AfterValidator(_known_measurement)]


def numeric_field(measurement: str | None, field: str) -> str:
    """Return the name of a numeric field of a measurement.

    Args:
        measurement: The measurement; None if it is invalid, so that any field is accepted.
        field: The configured field.

    Raises:
        ValueError: The measurement has no such field, or its values are text.
    """
    fields = SCHEMA[measurement].fields if measurement is not None else {field: float}
    if field not in fields:
        suggestion = nearest(field, fields)
        hint = f'did you mean "{suggestion}"?' if suggestion else f"it has {', '.join(fields)}"
        raise ValueError(f"{measurement} has no field {field!r}; {hint}")
    if fields[field] is str:
        raise ValueError(f"{field} is text; a rule compares numbers")
    return field


# Most series that a rule tracks; beyond it the least recently seen are dropped.
MAX_SERIES = 2000
SERIES_TAGS = ("device", "probe", "service", "served_model", "sink", "notifier", "budget")

# What a detail ends with: what to do, or that there is nothing.
TO_DO = "To do: "

Labels = tuple[tuple[str, str], ...]
Value = TypeVar("Value")


class RuleConfig(Section):
    """A `[[rule]]` section: options of all alert rules."""

    kind: str = Field(description="Kind of rule.", examples=["drift"])
    name: Name = Field(
        description="Name of the rule; it replaces a built-in rule of the same name.",
        examples=["slow"],
    )
    enabled: bool = Field(True, description="False disables the rule, also a built-in one.")
    match: Match = Field(
        default_factory=dict,
        description="Series that the rule applies to: a pattern for each tag.",
        examples=[{"probe": "chat*"}],
    )
    group: Name | None = Field(
        None,
        description="Rules with the same group share incidents; by default the name of the rule.",
        examples=["performance"],
    )
    group_by: tuple[Name, ...] = Field(
        ("host", "device"), description="Tags that distinguish incidents."
    )
    severity: Severity = Field("warning", description="Severity of the incidents.")
    labels: dict[Name, Label] = Field(
        default_factory=dict,
        description="Labels added to the incidents.",
        examples=[{"team": "ml"}],
    )
    for_s: Pause = key(
        "for",
        0.0,
        description="How long a symptom must last before the rule fires.",
        examples=["10m"],
    )
    cool_down_s: Pause = key(
        "cool_down",
        0.0,
        description="How long a resolved incident cannot fire again.",
        examples=["30m"],
    )
    notify: tuple[Name, ...] | None = Field(
        None, description="Notifiers by name; by default all.", examples=[["pager"]]
    )


class SeriesTable(OrderedDict[Labels, Value]):
    """A value for each series; at most MAX_SERIES, the least recently set are dropped."""

    def put(self, labels: Labels, value: Value) -> None:
        """Set the value of a series."""
        self[labels] = value
        self.move_to_end(labels)
        while len(self) > MAX_SERIES:
            self.popitem(last=False)


Config = TypeVar("Config", bound=RuleConfig)


class Rule(ABC, Generic[Config, Value]):
    """The state of one alert rule: a pure function of the rows and faults passed to it.

    A kind of rule is a subclass with `evaluate`, a RuleConfig section in the same file, and a line
    in `costprobe.alerts.rules.kinds.RULES`. All other methods are optional. A rule
    receives only what the `match` of its section selects. It has no clock and does no I/O: the
    same calls return the same symptoms.

    Args:
        config: Its section.

    Attributes:
        measurement: Series whose rows `observe` receives; empty for none.
        state: Constructs the state of a series from its document: a dataclass, or a dictionary.
        series: The state of each series. Its instants (UTC ns) stand under names that end in `_at_ns`:
            after a step of the wall clock those that lie in the future are moved, and the state is
            restored.
    """

    measurement: str = ""
    state: Callable[..., Any] = dict

    def __init__(self, config: Config) -> None:
        self.config = config
        self.series: SeriesTable[Value] = SeriesTable()

    @abstractmethod
    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:
        """Return the symptoms at an instant, one for each series that violates the rule.

        Args:
            time_ns: UTC in ns; not before that of the previous call.
            faults: Faults that are present now.
        """

    def observe(self, row: Point) -> None:
        """Add a row of `measurement`; rows of one series arrive in order of time."""

    def ended(self, symptom: Symptom, ended_ns: int) -> Symptom:
        """Return a symptom that is over, as a resolved incident reports it: what it was, and when.

        Args:
            symptom: As it was reported while it lasted.
            ended_ns: UTC in ns of the first evaluation without it.
        """
        return over_until(symptom, ended_ns)

    def forget_device(self, device: str) -> None:
        """Drop the series of a device that does not exist any more."""

    def document(self) -> list[dict[str, Any]]:
        """Return the state as JSON."""
        return [
            {"labels": dict(labels), **(value if isinstance(value, dict) else asdict(value))}  # type: ignore[call-overload] # a dataclass
            for labels, value in self.series.items()
        ]

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Replace the state by one that `document` returned: after a restart or a clock step.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: It is damaged.
        """
        entries = [dict(entry) for entry in document]
        keys = [tuple(entry.pop("labels").items()) for entry in entries]
        states = [self.state(**entry) for entry in entries]
        self.series = SeriesTable(zip(keys, states, strict=True))

    def symptom(self, labels: Labels, what: str, text: str, since_ns: int, **more: Any) -> Symptom:  # noqa: ANN401 - see Symptom
        """Return the symptom of a series.

        Args:
            labels: Its labels.
            what: What violates the rule, such as a field.
            text: The observation.
            since_ns: Start, UTC in ns.
            more: Further attributes of the symptom.
        """
        own = {"severity": self.config.severity, "labels": dict(labels), **more}
        return Symptom(self.config.name, f"{what}{where(labels)}", text, since_ns, **own)


def over(symptom: Symptom, text: str, *details: str) -> Symptom:
    """Return a symptom that is over, without what to do.

    Args:
        symptom: As it was reported.
        text: What it was, and when.
        details: Sentences before its own causes.
    """
    causes, *_ = symptom.detail.replace("No action is needed", TO_DO).partition(TO_DO)
    detail = " ".join(filter(None, (*details, causes.strip())))
    return replace(symptom, text=text, detail=detail.rstrip(";"))


# What ended without a return: its series has no rows any more, or is not measured any more.
UNMEASURED = "no longer measured"


def over_until(symptom: Symptom, ended_ns: int, how: str = "over") -> Symptom:
    """Return a symptom that is over since a UTC ns, with the text that was reported."""
    return over(symptom, f"{how} ({span_text(symptom.since_ns, ended_ns)}): {symptom.text}")


def span_text(since_ns: int, until_ns: int) -> str:
    """Format a span for people: "12:04 to 12:08 UTC", with dates or seconds where they differ only in those."""
    since, until = (datetime.fromtimestamp(ns // NS_PER_S, UTC) for ns in (since_ns, until_ns))
    form = "%H:%M" if since.date() == until.date() else "%Y-%m-%d %H:%M"
    form += ":%S" * (until_ns - since_ns < 60 * NS_PER_S)
    return f"{since:{form}} to {until:{form}} UTC"


def labels_of(tags: Mapping[str, str]) -> Labels:
    """Return the tags that identify a series for rules; the batch of a probe is not one."""
    return tuple((name, tags[name]) for name in SERIES_TAGS if tags.get(name))


def where(labels: Labels) -> str:
    """Describe a series: " of encoder on gpu0", " of gpu0"."""
    names = dict(labels)
    device = names.pop("device", "")
    others = " ".join(names.values())
    if others:
        return f" of {others} on {device}" if device else f" of {others}"
    return f" of {device}" if device else ""
