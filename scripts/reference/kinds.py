"""Readable types of configuration keys, with their limits."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from costprobe.adapters.http.access import Secret
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

# Readable types by the name of their validator.
VALIDATED = {
    "_duration": "duration",
    "_size": "size",
    "_share": "share",
    "_name": "name",
    "_currency": "currency",
    "_clock_time": "time of day",
    "_zone": "time zone",
    "_urls": "address, or list of them",
    "_selector": "counter",
}
PLAIN: dict[object, str] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    Decimal: "exact number",
    str: "text",
    Path: "path",
    Secret: "secret",
    date: "date",
}
_LIMITS = {"ge": "from {}", "gt": "above {}", "le": "to {}", "lt": "below {}"}
# The limits of types that are text in the file are not shown.
_WITHOUT_LIMITS = frozenset({"duration", "share", "size", "text", "path", "name", "date"})


class UnknownKindError(Exception):
    """A type without a readable name; the message states where to add one."""


def kind_words(hint: Any) -> str:  # noqa: ANN401 - a type, which may be of any form
    """Return the readable type of a key.

    Args:
        hint: The annotation, including `Annotated`.

    Raises:
        UnknownKindError: It has no readable name.
    """
    if hint in PLAIN:
        return PLAIN[hint]
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return "table"
    origin = get_origin(hint)
    if origin not in _MADE_OF:
        raise UnknownKindError(f"{hint}: add a readable name to VALIDATED or PLAIN in {__name__}")
    return _MADE_OF[origin](get_args(hint))


def limit_words(hint: Any, more: Iterable[object] = ()) -> str:  # noqa: ANN401 - as above
    """Return the limits of a number as text; empty if there are none, or they are not shown.

    Args:
        hint: The annotation.
        more: Metadata of the field.
    """
    if any(kind in kind_words(hint).split() for kind in _WITHOUT_LIMITS):
        return ""
    found: dict[str, object] = {}
    for note in [*_notes(hint), *more]:
        for part in note.metadata if isinstance(note, FieldInfo) else (note,):
            found |= {name: getattr(part, name) for name in _LIMITS if hasattr(part, name)}
    return " ".join(
        words.format(f"{found[name]:,}".removesuffix(".0"))
        for name, words in _LIMITS.items()
        if name in found
    )


def sections_in(hint: Any) -> list[type[BaseModel]]:  # noqa: ANN401 - as above
    """Return the section classes in an annotation, in order; one of several kinds once."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return [hint]
    return list(dict.fromkeys(found for one in get_args(hint) for found in sections_in(one)))


def _annotated_words(inner: tuple[Any, ...]) -> str:
    for note in inner[1:]:
        if isinstance(note, BeforeValidator):
            name = getattr(note.func, "__name__", "")
            if name not in VALIDATED:
                raise UnknownKindError(f"{name}: add a readable name to VALIDATED in {__name__}")
            return VALIDATED[name]
    return kind_words(inner[0])


def _either(inner: tuple[Any, ...]) -> str:
    named = [kind_words(one) for one in inner if one is not types.NoneType]
    return " or ".join(dict.fromkeys(named))


def _one_of(inner: tuple[Any, ...]) -> str:
    return ", ".join(f"`{_quoted(value)}`" for value in inner)


def _list_of(inner: tuple[Any, ...]) -> str:
    return f"list of: {kind_words(inner[0])}"


def _table_of(inner: tuple[Any, ...]) -> str:
    return f"table of: {kind_words(inner[1])}"


_MADE_OF: dict[object, Callable[[tuple[Any, ...]], str]] = {
    Annotated: _annotated_words,
    Literal: _one_of,
    Union: _either,
    types.UnionType: _either,
    tuple: _list_of,
    list: _list_of,
    dict: _table_of,
}


def _notes(hint: Any) -> list[Any]:  # noqa: ANN401 - as above
    """Return the metadata of `Annotated` in an annotation, except that of list items and tables."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return [*inner[1:], *_notes(inner[0])]
    if origin in (Union, types.UnionType):
        return [note for one in inner for note in _notes(one)]
    return []


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
