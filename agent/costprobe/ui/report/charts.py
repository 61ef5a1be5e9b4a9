"""Charts of a report as SVG: lines relative to a base, and bars of days, each with a description."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from xml.etree import ElementTree as ET

from costprobe.core.outside import one_line
from costprobe.core.periods import DAY_NS
from costprobe.core.records import NS_PER_S
from costprobe.ui.report.model import Bucket
from costprobe.ui.report.words import day, minute

WIDTH: Final = 720
HEIGHT: Final = 150
# Two charts over time fit side by side.
_SMALL_WIDTH: Final = 440
_SMALL_HEIGHT: Final = 150
_LEFT, _RIGHT, _RIGHT_LABELS, _TOP, _BOTTOM = 76, 12, 46, 14, 26
_TICKS: Final = 4
# A chart shows at least this change from its base in each direction.
_LEAST_PCT: Final = 5.0
_PERCENT_STEPS: Final = (2.5, 5.0, 10.0, 20.0, 25.0, 50.0, 100.0, 200.0, 500.0)
# A larger distance between steps is a gap and is not joined by a line.
_GAP_STEPS: Final = 2.5


@dataclass(frozen=True, slots=True)
class Mark:
    """An event marked on a chart.

    Attributes:
        number: Its number in the list of changes.
        time_ns: UTC ns.
        kind: Kind of the change.
        title: One line.
    """

    number: int
    time_ns: int
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class ChartFrame:
    """Size and value range of a chart.

    Attributes:
        since_ns: UTC ns of the left end.
        until_ns: UTC ns of the right end.
        bottom: Value at the lower end.
        top: Value at the upper end.
        width: Width in units of the drawing.
        height: Height.
        right: Space for labels at the right.
    """

    since_ns: int
    until_ns: int
    bottom: float
    top: float
    width: int
    height: int
    right: int

    def x(self, time_ns: float) -> float:
        """Return the x coordinate of a UTC ns."""
        share = (time_ns - self.since_ns) / max(1, self.until_ns - self.since_ns)
        return _LEFT + min(1.0, max(0.0, share)) * (self.width - _LEFT - self.right)

    def y(self, value: float) -> float:
        """Return the y coordinate of a value."""
        share = (value - self.bottom) / (self.top - self.bottom)
        return self.height - _BOTTOM - share * (self.height - _TOP - _BOTTOM)


def line_chart(  # noqa: PLR0913 - the parts of a chart
    ident: str,
    title: str,
    lines: Sequence[Sequence[Bucket]],
    *,
    base: float,
    span: tuple[int, int],
    step_ns: int,
    value_text: Callable[[float], str],
    marks: Sequence[Mark] = (),
) -> str:
    """Draw lines over time, relative to a base, with marks for events.

    The axis shows the range of the values, not 0: a change of 8 % is visible. Its labels are values
    at the left and changes from the base, in percent, at the right.

    Args:
        ident: An id that is unique in the page.
        title: Title of the chart.
        lines: Steps of the main line, then those of each device; at least one with one step.
        base: Value that changes are relative to; greater than 0.
        span: UTC ns of both ends.
        step_ns: Length of a step in ns.
        value_text: Formats a value with its unit.
        marks: Changes within the span.
    """
    values = [bucket.value for line in lines for bucket in line]
    ticks_pct = percent_ticks(min(values), max(values), base)
    bottom, top = (base * (1 + pct / 100) for pct in (ticks_pct[0], ticks_pct[-1]))
    frame = ChartFrame(*span, bottom, top, _SMALL_WIDTH, _SMALL_HEIGHT, _RIGHT_LABELS)
    ticks = [
        (
            base * (1 + pct / 100),
            value_text(base * (1 + pct / 100)),
            f"{pct:+g} %" if pct else "0 %",
        )
        for pct in ticks_pct
    ]
    svg = _drawing(ident, title, _description(lines[0], value_text, marks), frame, ticks)
    for mark in marks:
        _draw_mark(svg, frame, mark)
    for number, line in reversed(list(enumerate(lines))):
        name = "line" if number == 0 else "line one"
        _draw_line(svg, frame, line, step_ns, name)
    return _text(svg)


def percent_ticks(low: float, high: float, base: float) -> list[float]:
    """Return round changes in percent from a base that enclose a range of values.

    At least 5 % in each direction, so that noise does not look like a change.

    Args:
        low: Lowest value.
        high: Highest value.
        base: Value at 0 %; greater than 0.
    """
    least = min(-_LEAST_PCT, max(-100.0, (low / base - 1) * 100))
    most = max(_LEAST_PCT, (high / base - 1) * 100)
    step = next(
        (s for s in _PERCENT_STEPS if most - least <= s * (_TICKS + 1)), nice_top(most / _TICKS)
    )
    first, last = math.floor(least / step), math.ceil(most / step)
    return [max(-100.0, index * step) for index in range(first, last + 1)]


def _draw_line(
    svg: ET.Element, frame: ChartFrame, line: Sequence[Bucket], step_ns: int, name: str
) -> None:
    middle = step_ns / 2
    path, last_ns = [], None
    for bucket in line:
        joined = last_ns is not None and bucket.time_ns - last_ns <= step_ns * _GAP_STEPS
        point = f"{frame.x(bucket.time_ns + middle):.1f} {frame.y(bucket.value):.1f}"
        path.append(f"{'L' if joined else 'M'}{point}")
        last_ns = bucket.time_ns
    ET.SubElement(svg, "path", {"class": name, "d": " ".join(path)})
    for bucket in _isolated_steps(line, step_ns):
        x, y = frame.x(bucket.time_ns + middle), frame.y(bucket.value)
        ET.SubElement(
            svg, "circle", {"class": "dot", "cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "2.5"}
        )


def bar_chart(
    ident: str,
    title: str,
    buckets: Sequence[Bucket],
    span: tuple[int, int],
    value_text: Callable[[float], str],
) -> str:
    """Draw a bar for each day; arguments as those of `line_chart`."""
    whole_days = (span[0] // DAY_NS * DAY_NS, -(-span[1] // DAY_NS) * DAY_NS)
    top = nice_top(max(bucket.value for bucket in buckets))
    frame = ChartFrame(*whole_days, 0.0, top, WIDTH, HEIGHT, _RIGHT)
    ticks = [
        (top * tick / _TICKS, value_text(top * tick / _TICKS), "") for tick in range(_TICKS + 1)
    ]
    svg = _drawing(ident, title, _description(buckets, value_text, ()), frame, ticks)
    for bucket in buckets:
        left, right = frame.x(bucket.time_ns), frame.x(bucket.time_ns + DAY_NS)
        top = frame.y(max(0.0, bucket.value))
        rect = ET.SubElement(
            svg,
            "rect",
            {
                "class": "bar",
                "x": f"{left:.1f}",
                "y": f"{top:.1f}",
                "width": f"{max(0.5, (right - left) * 0.86):.1f}",
                "height": f"{frame.height - _BOTTOM - top:.1f}",
            },
        )
        ET.SubElement(rect, "title").text = f"{day(bucket.time_ns)}: {value_text(bucket.value)}"
    return _text(svg)


def nice_top(most: float) -> float:
    """Return the smallest of 1, 2, 2.5, 5 and 10 times a power of ten that is not below a value."""
    if not math.isfinite(most) or most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next((step * power for step in (1, 2, 2.5, 5) if step * power >= most), 10 * power)


def _description(
    buckets: Sequence[Bucket], value_text: Callable[[float], str], marks: Sequence[Mark]
) -> str:
    """Describe a chart for screen readers."""
    values = [bucket.value for bucket in buckets]
    low, high = min(buckets, key=lambda b: b.value), max(buckets, key=lambda b: b.value)
    words = [
        f"{len(values)} steps from {minute(buckets[0].time_ns)} to {minute(buckets[-1].time_ns)} UTC",
        f"first {value_text(values[0])}, last {value_text(values[-1])}",
        f"lowest {value_text(low.value)} at {minute(low.time_ns)}",
        f"highest {value_text(high.value)} at {minute(high.time_ns)}",
        *(f"mark {mark.number} at {minute(mark.time_ns)}: {mark.title}" for mark in marks),
    ]
    return "; ".join(words)


def _drawing(
    ident: str,
    title: str,
    description: str,
    frame: ChartFrame,
    ticks: Sequence[tuple[float, str, str]],
) -> ET.Element:
    """Return a drawing with axes; each tick has a value, its label at the left, and one at the right."""
    svg = ET.Element(
        "svg",
        {
            "viewBox": f"0 0 {frame.width} {frame.height}",
            "role": "img",
            "aria-labelledby": f"{ident}-title {ident}-desc",
        },
    )
    ET.SubElement(svg, "title", {"id": f"{ident}-title"}).text = title
    ET.SubElement(svg, "desc", {"id": f"{ident}-desc"}).text = description
    end = frame.width - frame.right
    for value, left, right in ticks:
        y = f"{frame.y(value):.1f}"
        grid = {"class": "grid", "x1": str(_LEFT), "x2": str(end), "y1": y, "y2": y}
        ET.SubElement(svg, "line", grid)
        for x, anchor, text in ((_LEFT - 6, "end", left), (end + 6, "start", right)):
            if text:
                place = {"class": "tick", "x": str(x), "y": y, "dy": "0.32em"}
                ET.SubElement(svg, "text", {**place, "text-anchor": anchor}).text = text
    ends_ns = (frame.since_ns, frame.until_ns)
    # The last day is the one that ends at the end.
    is_long = ends_ns[1] - ends_ns[0] > 3 * DAY_NS
    names = (day(ends_ns[0]), day(ends_ns[1] - NS_PER_S)) if is_long else map(minute, ends_ns)
    for time_ns, anchor, name in zip(ends_ns, ("start", "end"), names, strict=True):
        attributes = {"class": "tick", "x": f"{frame.x(time_ns):.1f}", "y": str(frame.height - 8)}
        ET.SubElement(svg, "text", {**attributes, "text-anchor": anchor}).text = name
    return svg


def _draw_mark(svg: ET.Element, frame: ChartFrame, mark: Mark) -> None:
    x = f"{frame.x(mark.time_ns):.1f}"
    group = ET.SubElement(svg, "g", {"class": "mark"})
    ET.SubElement(group, "title").text = f"{mark.number}. {mark.title}"
    ends = {"x1": x, "x2": x, "y1": str(_TOP), "y2": str(frame.height - _BOTTOM)}
    ET.SubElement(group, "line", ends)
    label = {"x": x, "y": str(_TOP - 3), "text-anchor": "middle"}
    ET.SubElement(group, "text", label).text = str(mark.number)


def _isolated_steps(buckets: Sequence[Bucket], step_ns: int) -> list[Bucket]:
    """Return the isolated steps: a line of one point is invisible."""
    joined = set()
    for index, (bucket, other) in enumerate(pairwise(buckets)):
        if other.time_ns - bucket.time_ns <= step_ns * _GAP_STEPS:
            joined |= {index, index + 1}
    return [bucket for index, bucket in enumerate(buckets) if index not in joined]


def _text(svg: ET.Element) -> str:
    _make_xml_safe(svg)
    return ET.tostring(svg, encoding="unicode", short_empty_elements=True)


def _make_xml_safe(svg: ET.Element) -> None:
    """Replace control characters in texts from outside."""
    for element in svg.iter():
        if element.text:
            element.text = one_line(element.text)
