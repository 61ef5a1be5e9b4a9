"""Render the dashboard's own page about timing, from the section of docs/measurement.md.

The dashboard requests nothing from other servers, so the section is part of it.
"""

from __future__ import annotations

import re
from pathlib import Path

from markdown_it import MarkdownIt

_SOURCE = Path(__file__).parents[2] / "docs" / "measurement.md"
_SECTION = re.compile(r"^## Why our timing$\n(?P<text>.*?)(?=^## )", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[(?P<words>[^\]]+)\]\([^)]+\)")
_PAGE = """\
<!doctype html>
<!-- made by python -m scripts.reference -->
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Why our timing - costprobe</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/page.css">
</head>
<body>
<main class="document">
<h1>Why our timing</h1>
{text}
<p>From <code>docs/measurement.md</code>. <a href="/">Back to the dashboard</a></p>
</main>
</body>
</html>
"""


def render() -> str:
    """Return the page; links to other sections are plain text.

    Raises:
        ValueError: The section is missing.
    """
    section = _SECTION.search(_SOURCE.read_text(encoding="utf-8"))
    if section is None:
        raise ValueError(f"{_SOURCE}: no section '## Why our timing' before another one")
    plain = _LINK.sub(r"\g<words>", section["text"])
    text = MarkdownIt("commonmark").enable("table").render(plain)
    framed = text.replace("<table>", '<div class="scroll" tabindex="0"><table>')
    framed = framed.replace("</table>", "</table></div>").replace("<pre>", '<pre tabindex="0">')
    return _PAGE.format(text=framed)
