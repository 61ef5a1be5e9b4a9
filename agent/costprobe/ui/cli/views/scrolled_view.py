"""The live view of `costprobe top`: the part that fits the terminal, moved by keys."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

from costprobe.ui.cli.views.top_view import TopView

# Keys of the live view, as a terminal sends them.
KEYS: Mapping[str, str] = {
    "\x1b[A": "up", "\x1bOA": "up", "k": "up",
    "\x1b[B": "down", "\x1bOB": "down", "j": "down",
    "\x1b[5~": "page up", "b": "page up",
    "\x1b[6~": "page down", " ": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "g": "home",
    "\x1b[F": "end", "\x1bOF": "end", "G": "end",
    "\t": "section",
}  # fmt: skip
# The last one is Ctrl-D.
QUITTING = ("q", "Q", "\x04")
_KEY = re.compile(r"\x1b[\[O][0-9;]{0,8}[A-Za-z~]|.", re.DOTALL)


class ScrolledView:
    """The lines of a view that fit the terminal, and a last line with position and keys.

    The first line, which shows whether the daemon runs, is always visible.

    Attributes:
        view: The newest snapshot.
    """

    def __init__(self, view: TopView) -> None:
        self.view = view
        self._first = 0
        self._page = 1
        self._last = 0
        self._starts: list[int] = [0]

    def press(self, keys: str) -> bool:
        """Move by the keys, and return False for one that quits; others do nothing.

        Args:
            keys: What the terminal sent.
        """
        for key in _KEY.findall(keys):
            if key in QUITTING:
                return False
            self._scroll(KEYS.get(key, ""))
        return True

    def _scroll(self, key: str) -> None:
        first, page = self._first, self._page
        self._first = {
            "up": first - 1,
            "down": first + 1,
            "page up": first - page,
            "page down": first + page,
            "home": 0,
            "end": self._last,
            "section": next((start for start in self._starts if start > first), 0),
        }.get(key, first)
        # So that keys pressed at once end where single ones do.
        self._first = min(max(0, self._first), self._last)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the visible lines."""
        lines: list[list[Segment]] = []
        starts = []
        unlimited = options.update(height=None)
        for section in self.view.sections(options.max_width):
            starts.append(len(lines))
            for part in section:
                lines += console.render_lines(part, unlimited, pad=False)
        head, body = lines[0], lines[1:]
        self._page = page = max(1, options.size.height - 2)
        self._last = last = max(0, len(body) - page)
        self._first = first = min(self._first, last)
        # The head is no part of the body; a section at the end cannot be moved to the top.
        self._starts = [min(last, max(0, start - 1)) for start in starts]
        for line in [head, *body[first : first + page]]:
            yield from line
            yield Segment.line()
        yield Text(_position(first, page, len(body), options.max_width), style="dim", end="")


def _position(first: int, page: int, total: int, width: int) -> str:
    if total <= page:
        return "q quit"
    shown = f"lines {first + 1} to {min(first + page, total)} of {total}"
    keys = "↑ ↓ scroll  space/b page  tab next section  q quit"
    return next((text for text in (f"{shown}  {keys}", keys) if len(text) <= width), "q quit")
