"""The way of every text from outside into messages, rows and logs."""

from __future__ import annotations

from typing import Any

from costprobe.adapters.system.redaction import REDACTOR
from costprobe.core.printable import one_line


def outside_text(text: str, chars_max: int | None = None) -> str:
    """Return a text from a server, a module or a command: without secrets, on one printable line.

    Args:
        text: The text.
        chars_max: Its longest length after that; None for any.
    """
    return one_line(REDACTOR.from_outside(text))[:chars_max]


def outside_document(document: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value whose texts passed `outside_text`; its keys are unchanged."""
    if isinstance(document, str):
        return outside_text(document)
    if isinstance(document, dict):
        return {name: outside_document(value) for name, value in document.items()}
    if isinstance(document, list):
        return [outside_document(value) for value in document]
    return document
