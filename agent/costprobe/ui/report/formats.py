"""A report as sections of sentences, tables and charts: as Markdown, and as one page of HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from markupsafe import Markup

from costprobe import __version__
from costprobe.ui.tables import Table
from costprobe.ui.text import escaped, html_template

TEMPLATE: Final = Path(__file__).parent / "templates" / "report.html"


class KeyFigure(NamedTuple):
    """A figure with its name, and a remark that may be empty."""

    name: str
    value: str
    remark: str = ""


class Entry(NamedTuple):
    """An entry of a numbered list.

    Attributes:
        title: What to do.
        amount: What it saves.
        facts: What this rests on.
    """

    title: str
    amount: str
    facts: Sequence[str]


class Chart(NamedTuple):
    """A chart of the page.

    Attributes:
        caption: What it shows.
        svg: The drawing.
        is_wide: Whether it takes the page's width.
    """

    caption: str
    svg: Markup
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a report, in the order in which it is shown.

    Attributes:
        title: Heading.
        charts: Charts of the page.
        chart_note: A sentence about the charts, for the page.
        tables: Tables.
        lines: A list of sentences.
        entries: A numbered list.
        notes: Sentences below.
        charted: Tables with the figures of the charts, for Markdown only.
        is_half: Whether the page shows it beside the next or previous one.
    """

    title: str
    charts: Sequence[Chart] = ()
    chart_note: str = ""
    tables: Sequence[Table] = ()
    lines: Sequence[str] = ()
    entries: Sequence[Entry] = ()
    notes: Sequence[str] = ()
    charted: Sequence[Table] = ()
    is_half: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A report.

    Attributes:
        title: Heading.
        subtitle: One sentence below.
        figures: Figures at the top.
        first: Sections of the first page.
        details: The others.
        footer: One sentence at the end.
    """

    title: str
    subtitle: str
    figures: Sequence[KeyFigure]
    first: Sequence[Section]
    details: Sequence[Section] = ()
    footer: str = ""


def page(document: Document) -> str:
    """Format a report as one self-contained page of HTML; text from outside is escaped."""
    return html_template(TEMPLATE).render(report=document, version=__version__)


def markdown(document: Document) -> str:
    """Format a report as GitHub-flavoured Markdown; text from outside is escaped."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Document) -> Iterator[str]:
    yield from (f"# {escaped(document.title)}", "", escaped(document.subtitle))
    if document.figures:
        yield ""
    for one in document.figures:
        remark = f" ({escaped(one.remark)})" if one.remark else ""
        yield f"- {escaped(one.name)}: **{escaped(one.value)}**{remark}"
    for section in document.first:
        yield from _section(section)
    if document.details:
        yield from ("", "# Details")
    for section in document.details:
        yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    yield from ("", f"## {escaped(section.title)}")
    for table in (*section.charted, *section.tables):
        yield from ("", *table.markdown())
    if section.lines:
        yield ""
    yield from (f"- {escaped(line)}" for line in section.lines)
    for number, entry in enumerate(section.entries, 1):
        yield from ("", f"{number}. **{escaped(entry.title)}**, {escaped(entry.amount)}")
        yield from (f"   - {escaped(fact)}" for fact in entry.facts)
    for note in section.notes:
        yield from ("", escaped(note))
