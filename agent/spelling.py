"""What somebody may have meant who misspelt a name."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that is most like a word; None where none is like it.

    Args:
        word: What was written.
        known: What could have been.
    """
    # Here, and not at the top: who reads a file without errors shall not carry it.
    import difflib  # noqa: PLC0415

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)
