"""The report of a fleet as Markdown, and as one self-contained page of HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from costprobe import __version__
from costprobe.core.outside import one_line
from costprobe.fleet.report import FleetReport
from costprobe.ui.fleet_report.tables import headlines, tables, title

TEMPLATES: Final = Path(__file__).parent / "templates"
_MARKS: Final = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def markdown(report: FleetReport) -> str:
    """Format a report as GitHub-flavoured Markdown; text from outside is escaped."""
    return "\n".join(_lines(report)) + "\n"


def page(report: FleetReport) -> str:
    """Format a report as HTML without external requests; text from outside is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only a page

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = one_line
    return environment.get_template("fleet_report.html").render(
        title=title(report),
        headlines=list(headlines(report)),
        tables=list(tables(report)),
        problems=report.problems,
        version=__version__,
    )


def _escaped(text: str) -> str:
    return _MARKS.sub(r"\\\1", " ".join(one_line(text).split()))


def _lines(report: FleetReport) -> Iterator[str]:
    yield f"# {_escaped(title(report))}"
    yield ""
    yield from (f"- {_escaped(line)}" for line in headlines(report))
    yield from (f"- Partial: {_escaped(problem)}" for problem in report.problems)
    for table in tables(report):
        yield from ("", f"## {_escaped(table.title)}", "")
        if table.note:
            yield from (table.note, "")
        yield f"| {' | '.join(map(_escaped, table.heads))} |"
        yield f"|{' --- |' + ' ---: |' * (len(table.heads) - 1)}"
        for row in table.rows:
            yield f"| {' | '.join(map(_escaped, row))} |"
