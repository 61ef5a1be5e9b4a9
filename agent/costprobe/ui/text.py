"""Display formats of times, energies, tokens and names of devices, the same in every command, page and report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from costprobe.core.money import money
from costprobe.core.outside import one_line
from costprobe.core.records import NS_PER_S, devices_text, listed
from costprobe.core.units import percent, significant
from costprobe.ui.amounts import si

if TYPE_CHECKING:  # the imports take longer than commands that need neither
    from jinja2 import Template

    from costprobe.spend.forecast import PeriodSpend
    from costprobe.unit_costs.compare import Candidate

# Characters with a meaning in Markdown or HTML.
_MARKS: Final = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def escaped(text: str) -> str:
    """Escape Markdown and HTML in a text, and put it on one line."""
    return _MARKS.sub(r"\\\1", " ".join(one_line(text).split()))


def html_template(file: Path) -> Template:
    """Return a template of HTML that escapes texts, and shows each on one line."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only a page
    from markupsafe import Markup  # noqa: PLC0415 - as above

    def printable(value: object) -> object:
        is_text = isinstance(value, str) and not isinstance(value, Markup)
        return one_line(str(value)) if is_text else value

    return Environment(
        loader=FileSystemLoader(file.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printable,
    ).get_template(file.name)


# "12:04 to 12:08 UTC" names the zone once.
_SPAN: Final = re.compile(
    r"(?<=\d\d:\d\d)((?::\d\d)? to (?:\d{4}-\d\d-\d\d )?\d\d:\d\d(?::\d\d)? UTC)"
)
_CLOCK: Final = re.compile(r"(?<!\d )(?<![\d:])(\d\d:\d\d)(?::\d\d)? UTC")
# An event is written some seconds after what it reports.
_LATE_NS: Final = 60 * NS_PER_S
_DAY_NS: Final = 86_400 * NS_PER_S
_DATED: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d)(?::\d\d)? UTC")


def utc(time_ns: int) -> str:
    """Return a time as texts have it."""
    return datetime.fromtimestamp(time_ns / NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M UTC")


def dated(text: str, written_ns: int) -> str:
    """Return a text from outside on one line, its times to the minute and with their date.

    Args:
        text: The text.
        written_ns: UTC ns at which it was written; times in it are not later.
    """

    def with_date(found: re.Match[str]) -> str:
        day = datetime.fromtimestamp(written_ns / NS_PER_S, UTC)
        at = day.replace(hour=int(found[1][:2]) % 24, minute=int(found[1][3:]) % 60, second=0)
        at_ns = int(at.timestamp()) * NS_PER_S
        return utc(at_ns - _DAY_NS if at_ns > written_ns + _LATE_NS else at_ns)

    whole = _SPAN.sub(lambda found: " UTC" + found[1].lstrip(":0123456789"), one_line(text))
    return _DATED.sub(r"\1 UTC", _CLOCK.sub(with_date, whole))


def in_local_zone(text: str, written_ns: int) -> str:
    """Return a text from outside on one line, its times in the zone of this host.

    Args:
        text: The text, with times in UTC, also without a date.
        written_ns: UTC ns at which it was written.
    """

    def here(found: re.Match[str]) -> str:
        at = datetime.strptime(found[1], "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
        return f"{at.astimezone():%Y-%m-%d %H:%M %Z}"

    return _DATED.sub(here, dated(text, written_ns))


def local(time_ns: int) -> str:
    """Format UTC ns as local time of this host, with the name of its zone."""
    return datetime.fromtimestamp(time_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def ago(duration_s: float) -> str:
    """Return a rounded duration for display: "12 s", "3 min", "2 h", "4.0 d".

    After the wall clock was set back a time in the future is 0 s ago.
    """
    duration_s = max(0.0, duration_s)
    for limit_s, unit_s, unit in ((90, 1, "s"), (5400, 60, "min"), (129_600, 3600, "h")):
        if duration_s < limit_s:
            return f"{duration_s / unit_s:.0f} {unit}"
    return f"{duration_s / 86_400:.1f} d"


# What costs of a basis contain.
BASES: Final = {
    "probe": "probe basis: one inference on an otherwise idle device",
    "serving": "serving basis: the whole cost of the devices, idle time included",
}


# How tokens are counted where the answers of a server have no `usage`, as llama.cpp's may.
CHUNKS = "chunks of the stream counted as tokens"


# Behind the price of cached tokens whose weight no calibration has measured.
UNMEASURED = " (no weight measured)"


class KindPrice(NamedTuple):
    """The price of a million tokens of one kind: "fresh tokens in", "cached tokens in", "tokens out".

    Attributes:
        amount: Currency, or another price.
        which: "fresh ", "cached " or nothing.
        way: "in" or "out".
    """

    amount: float
    which: str
    way: str


def kind_prices(price_of: Callable[[str], float | None]) -> Iterator[KindPrice]:
    """Yield the known prices of tokens; that of input in two where some of it was cached.

    Args:
        price_of: Price by kind: "in", "fresh", "cached" or "out"; None if there is none.
    """
    cached = price_of("cached")
    inputs = [("in", "", "in")]
    if cached is not None:
        inputs = [
            ("fresh", "fresh ", "in"),
            ("cached", "cached ", "in" if cached else f"in{UNMEASURED}"),
        ]
    for kind, which, way in (*inputs, ("out", "", "out")):
        amount = price_of(kind)
        if amount is not None:
            yield KindPrice(amount, which, way)


def cache_words(share: float | None, saved: float | None, currency: str) -> str:
    """Return what a cache answered and saved: "40 % of tokens in cached, saved $0.05"; empty if nothing.

    Args:
        share: Share of the prompt tokens; None if they are not counted.
        saved: Currency; None if unknown.
        currency: ISO 4217 code.
    """
    if not share:
        return ""
    words = f"{percent(share)} of tokens in cached"
    return words if saved is None else f"{words}, saved {money(saved, currency)}"


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels as one text, in order: "device=gpu0 rule=hot"."""
    return " ".join(f"{name}={value}" for name, value in sorted(labels.items()))


def figure(value: float | None, digits: int = 4) -> str:
    """Format a number with significant digits; a dash if unknown."""
    return "-" if value is None else significant(value, digits)


def with_error(cell: str, rel_err: float | None) -> str:
    """Return the cell of a known value with its uncertainty: "0.325 ±5 %"."""
    return cell if cell == "-" else f"{cell} ±{percent(rel_err or 0)}"


# Rows that cover less than this of a period leave out a cost that people would miss.
_COVERED: Final = 0.99


def unmeasured_words(coverage: float | None, currency: str) -> str:
    """Return what no figure of a spend and its forecast contains; empty if rows cover nearly all of the time."""
    if coverage is None or coverage >= _COVERED:
        return ""
    missing = percent(1 - coverage)
    return f"not in spend, forecast and interval: {missing} of the time so far, without rows in {currency}"


def forecast_cells(spend: PeriodSpend, currency: str) -> tuple[str, str]:
    """Return the expected spend of a period and its 80 % interval; dashes without a forecast."""
    if spend.expected is None or spend.low is None or spend.high is None:
        return "-", "-"
    expected, low, high = (
        money(amount, currency) for amount in (spend.expected, spend.low, spend.high)
    )
    return expected, f"{low} to {high}"


# "gpu0 and gpu1 and gpu2", as actions and workloads list devices.
_LISTED: Final = re.compile(r"\b[\w.]*\d(?: and [\w.]*\d){2,}\b")


def shared_needs(needs: Mapping[str, Sequence[str]]) -> tuple[set[str], list[str]]:
    """Return what several of some workloads lack, and it as lines, each need once.

    Args:
        needs: What each workload lacks, by its name.
    """
    lacking: dict[str, list[str]] = {}
    for name, texts in needs.items():
        for text in texts:
            lacking.setdefault(text, []).append(name)
    shared = {text: names for text, names in lacking.items() if len(names) > 1}
    return set(shared), [
        f"needed for {'all' if len(names) == len(needs) else listed(names)}: {text}"
        for text, names in shared.items()
    ]


def short(text: str) -> str:
    """Return a text with runs of devices as "gpu0 to gpu7"."""
    return _LISTED.sub(lambda match: devices_text(match[0].split(" and ")), text)


def per_million_tokens(candidate: Candidate) -> str:
    """Cost and energy of a million tokens of each kind; empty if neither is known."""
    words = "; ".join(part for part in _per_million(candidate) if part)
    return f"{words} ({CHUNKS})" if words and candidate.counts_chunks else words


def _per_million(candidate: Candidate) -> list[str]:
    return [
        ", ".join(texts)
        for texts in (
            [
                f"{money(price.amount, candidate.currency)} {price.which}{price.way}"
                for price in kind_prices(candidate.token_price)
            ],
            [
                f"{si(summary.value, 'J')} {words}"
                for words, summary in (
                    ("in", candidate.energy_per_million_tokens_in_j),
                    ("out", candidate.energy_per_million_tokens_out_j),
                )
                if summary is not None
            ],
            [
                text
                for text in [
                    cache_words(
                        candidate.cached_share, candidate.cost_cache_saved, candidate.currency
                    )
                ]
                if text
            ],
        )
    ]
