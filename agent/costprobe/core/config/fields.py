"""Types of configuration values: durations, sizes, shares, names, money; and sections of kinds.

A section of several kinds is the union type of a table, built from a registry. Two sections that
others share are here: [host] with the tags of every row of this host, and the source of values
that change over time: a file, a command or an HTTP endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
)

from costprobe.core.periods import WEEKDAYS, Weekday, is_within, minutes_of
from costprobe.core.schema import OWN_NAMES
from costprobe.core.units import format_duration, parse_duration_s, parse_size_bytes


def _duration(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError('a duration is text with a unit, such as "5m"')  # noqa: TRY004 - pydantic collects ValueErrors
    return parse_duration_s(value)


def _size(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError('a size is text with a unit, such as "4GiB"')  # noqa: TRY004 - pydantic collects ValueErrors
    return parse_size_bytes(value)


def _share(value: Any) -> Any:
    if isinstance(value, str):
        number = value.strip()
        with suppress(ArithmeticError):
            value = Decimal(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError('a share is a number from 0 to 1 or a percentage such as "1%"')  # noqa: TRY004 - pydantic collects ValueErrors
    if 1 < float(value) <= 100:  # noqa: PLR2004 - a percentage
        raise ValueError(f'must be at most 1; for {value} percent write "{value}%"')
    return value


def _name(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}", value):
        raise ValueError(
            "a name has up to 64 letters, digits and _ . : - and starts with a letter or a digit"
        )
    return value


def _currency(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"[A-Z]{3}", value):
        raise ValueError('a currency is an ISO 4217 code of three capitals, such as "USD"')
    return value


def _clock_time(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d|24:00", value):
        raise ValueError('a time of day is "HH:MM", from "00:00" to "24:00"')
    return value


def _zone(value: Any) -> Any:
    if isinstance(value, str):
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError('no such time zone; write one such as "Europe/Berlin"') from error
    return value


def matching(pattern: str, words: str) -> AfterValidator:
    """Return a check that text matches a pattern.

    `re` compiles the pattern on first use; pydantic's own engine compiles all patterns at start,
    at 70 kB each.

    Args:
        pattern: The pattern of the whole text.
        words: What the text is, for the error.
    """

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(words)
        return text

    return AfterValidator(check)


def has_port(url: str) -> bool:
    """Whether the port of a URL, if it has one, is from 1 to 65535."""
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


def url_matching(pattern: str, words: str) -> AfterValidator:
    """Return a check that a URL matches a pattern and has a valid port; arguments as of `matching`."""

    def check(url: str) -> str:
        if not (re.fullmatch(pattern, url) and has_port(url)):
            raise ValueError(f"write {words}, with a port from 1 to 65535 if any")
        return url

    return AfterValidator(check)


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("contains a line break or another control character; remove it")
    return value


# An address without a user; and one without a query, too, which may contain a key.
IS_URL = url_matching(r"https?://[^/@\s]+(/\S*)?", "an http:// or https:// URL without a user")
IS_BARE_URL = url_matching(
    r"https?://[^/@\s?#]+(/[^\s?#]*)?", "an http:// or https:// URL without user and query"
)
# Text that becomes a tag or a label.
Label = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
_AsDuration = PlainSerializer(format_duration, return_type=str, when_used="json")
_AsSize = PlainSerializer(lambda size_bytes: f"{size_bytes}B", return_type=str, when_used="json")
# Shorter ones are shorter than any action that they could time.
Duration = Annotated[float, BeforeValidator(_duration), Field(ge=0.001), _AsDuration]
Pause = Annotated[float, BeforeValidator(_duration), Field(ge=0), _AsDuration]
WindowDuration = Annotated[float, BeforeValidator(_duration), Field(ge=5), _AsDuration]
Size = Annotated[int, BeforeValidator(_size), Field(gt=0), _AsSize]
Share = Annotated[float, BeforeValidator(_share), Field(gt=0, le=1)]
ExactShare = Annotated[Decimal, BeforeValidator(_share), Field(ge=0, lt=1)]
# Quality of a model by the operator's own measure; higher is better.
Quality = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
# One value for a whole service, or one for each of its models.
Qualities = Annotated[
    Annotated[Quality, Tag("[one]")]
    | Annotated[dict[str, Quality], Field(max_length=64), Tag("[each]")],
    Discriminator(lambda value: "[each]" if isinstance(value, dict) else "[one]"),
]
Name = Annotated[str, BeforeValidator(_name)]
Currency = Annotated[str, BeforeValidator(_currency)]
ClockTime = Annotated[str, BeforeValidator(_clock_time)]
Zone = Annotated[str, BeforeValidator(_zone)]
# A label's name to a pattern in which * and ? are wildcards.
Match = dict[Name, str]
# A day (UTC) whose instants fit into 64 bits of ns, also a term or a time zone later.
Day = Annotated[date, Field(ge=date(1970, 1, 1), le=date(2100, 1, 1))]
# Decimal places of an amount of money.
MONEY_PLACES = 9
SignedMoney = Annotated[Decimal, Field(max_digits=18, decimal_places=MONEY_PLACES)]
Money = Annotated[SignedMoney, Field(ge=0)]


class Section(BaseModel):
    """One table of the file; unknown keys are errors, and instances are immutable.

    Attributes:
        removed: Keys of earlier versions, and what happens instead; those of base classes hold, too.
    """

    removed: ClassVar[Mapping[str, str]] = {}

    # The root model's validator contains those of its sections; building theirs would waste memory.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def key(name: str, default: Any = ..., **more: Any) -> Any:
    """Return a field whose key in the file has no unit suffix, because its value has the unit."""
    return Field(default, alias=name, **more)


def union_of_kinds(kinds: Mapping[str, type[Section]], key: str) -> Any:
    """Return the type of a table whose key selects one of several section classes.

    Args:
        kinds: Section classes by kind, as a registry lists them.
        key: Key of the table that names the kind.
    """

    def kind_of(value: Any) -> str:
        return str(value.get(key) if isinstance(value, dict) else getattr(value, key, None))

    members = (Annotated[section, Tag(kind)] for kind, section in kinds.items())
    return Annotated[reduce(or_, members), Discriminator(kind_of)]


class WeeklyHoursConfig(Section):
    """Hours of the week with a figure of their own; they may end on the next day."""

    days: tuple[Weekday, ...] = Field(
        WEEKDAYS,
        min_length=1,
        description="Days on which the hours start.",
        examples=[["mon", "tue", "wed", "thu", "fri"]],
    )
    start: ClockTime = Field(description="Start, in `timezone`.", examples=["08:00"])
    end: ClockTime = Field(
        description="End, in `timezone`; at or before `start` it is on the next day.",
        examples=["20:00"],
    )

    def minutes(self) -> set[int]:
        """Return the minutes of the week, from Monday's midnight, that these hours contain."""
        return minutes_of(self.days, self.start, self.end)

    def contains(self, time_ns: int, timezone: str) -> bool:
        """Return whether an instant lies in these hours.

        Args:
            time_ns: UTC in ns since 1970.
            timezone: IANA name.
        """
        return is_within(self.days, self.start, self.end, timezone, time_ns)


def check_each_applies(hours: Sequence[WeeklyHoursConfig]) -> None:
    """Check that each of some hours, of which the first match applies, has a minute of its own.

    Raises:
        ValueError: Earlier ones contain all minutes of one; the message names its index.
    """
    covered: set[int] = set()
    for index, span in enumerate(hours):
        minutes = span.minutes()
        if minutes <= covered:
            raise ValueError(
                f"hours[{index}] never apply: earlier hours contain them; remove them, or write"
                " them first"
            )
        covered |= minutes


def _label(name: str) -> str:
    if name in OWN_NAMES:
        raise ValueError("is a tag or a field of costprobe; choose another name")
    return name


Labels = dict[Annotated[Name, AfterValidator(_label)], Label]


class HostConfig(Section):
    """This host: its tags in the series, and what it is."""

    name: Annotated[Label, Field(min_length=1)] | None = Field(
        None, description="The tag `host`; by default the host name.", examples=["gpu-01"]
    )
    labels: Labels = Field(
        default_factory=dict,
        description="Further tags on every row, such as rack or team.",
        examples=[{"rack": "a1"}],
    )
    detect: Literal["auto", "off"] = Field(
        "auto",
        description=(
            "Whether to detect the cloud instance, for its list price, while no `[[price]]` is"
            ' configured: "auto" reads DMI, and requests type and region from the metadata service of'
            " the cloud that DMI names."
        ),
        examples=["off"],
    )


class SourceConfig(Section):
    """A source of values that change over time."""

    file: Path | None = Field(
        None,
        description="CSV or JSON file of values over time; read again when it changes.",
        examples=["/var/lib/prices/spot.csv"],
    )
    command: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        max_length=32,
        description="Program and arguments that print the same to standard output.",
        examples=[["/usr/local/bin/spot-price"]],
    )
    url: Annotated[str, Field(max_length=500), IS_URL] | None = Field(
        None,
        description="HTTP endpoint that returns the same.",
        examples=["https://prices.example.com/spot"],
    )
    every_s: Duration = key("every", 300.0, description="Time between two reads.")
    stale_after_s: Duration = key(
        "stale_after", 7200.0, description="Age after which the last known value is stale."
    )

    @property
    def sources(self) -> int:
        """Number of sources (file, command, url) that are configured."""
        return sum(source is not None for source in (self.file, self.command, self.url))
