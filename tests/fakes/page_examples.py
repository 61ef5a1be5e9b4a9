"""Output on the pages, which is compared with what is printed."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_OUTPUT = re.compile(r"^```(?:text|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def missing_lines(page, printed, *, having=""):
    """Return the lines of output on a page that were not printed; figures, times and widths may differ.

    Args:
        page: Its path below docs.
        printed: What the command printed.
        having: A text in the blocks that are compared; all by default.
    """
    shown = [text for text in _OUTPUT.findall((DOCS / page).read_text()) if having in text]
    lines = [line for text in shown for line in text.splitlines() if line and line[0] not in "$#"]
    assert lines, f"{page} shows no output with {having!r} any more"
    seen = "\n".join(map(_shape, printed.splitlines()))
    return [line for line in lines if not re.search(_pattern(line), seen, re.MULTILINE)]


def _pattern(line):
    """Return what matches a line of a page, in which "…" stands for any text."""
    return f"^{re.escape(_shape(line)).replace('…', '.*')}$"


def _shape(line):
    """Return the words of a line with its numbers, times and signs masked."""
    known = re.sub(r"host=\S+|\b(?:CET|UTC)\b", "", line)
    known = re.sub(r"[-+]?[$€]?\d[\d.,:TZe-]*|\b(?:s|min|[mk]?J)\b", "0", known)
    return " ".join(known.split())
