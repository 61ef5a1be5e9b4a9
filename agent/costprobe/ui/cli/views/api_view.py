"""Services beside hosted models, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costprobe.savings.hosted_apis import HostingChoice
from costprobe.ui import hosted_apis
from costprobe.ui.cli.support.fitting import table_lines


def api_lines(choices: Sequence[HostingChoice]) -> Iterator[str]:
    """Yield the answer to "self-host or API?" for each service."""
    yield "self-host or API?"
    for choice in choices:
        yield hosted_apis.caption(choice)
        if rows := hosted_apis.table(choice):
            yield from (f"  {line}" for line in table_lines([hosted_apis.HEADS, *rows]))
        yield from (f"  {line}" for line in hosted_apis.remarks(choice))
    yield hosted_apis.NOTE
