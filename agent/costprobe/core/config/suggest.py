"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a word; None if none is similar.

    Args:
        word: The word as written.
        known: The known names.
    """
    # Imported here, because a file without errors does not need it.
    import difflib  # noqa: PLC0415

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)
