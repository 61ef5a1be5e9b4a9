"""Text, JSON, TOML and files from outside the process: bounded, printable, read without waiting.

Parsing of JSON and TOML limits size, depth and number of values. Every reader of such text uses
these functions, so that no input can exhaust memory or the stack. One filter makes text printable
for terminals, files and messages. Files that the configuration names are read without waiting for
the writer of a FIFO.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

MAX_BYTES: Final = 16 << 20
MAX_DEPTH: Final = 64
# An empty list takes two characters and 56 bytes.
MAX_VALUES: Final = 500_000
# What the use of a document raises whose values have another shape than its reader expects.
SHAPE_ERRORS: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_LEVELS: Final = (dict, list)
# Byte order marks, and the encodings that they state.
_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_HOLE: Final = re.compile(r"(?<=[^ \0]) *\0[ \0]*|\0+")
# Characters that begin a formula in a spreadsheet.
_FORMULA_MARKS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001 - their wide forms


class OutsideError(Exception):
    """A disk, a server or another program failed; the text says all, without a traceback."""


class UnusableInputError(ValueError):
    """A text is malformed, or exceeds a limit; the message contains no part of it."""


class OversizedInputError(UnusableInputError):
    """A text has more bytes or values than the limit."""


def decoded_text(content: bytes, max_bytes: int, fallback: str = "") -> str:
    """Decode text: UTF-8, or the encoding that a byte order mark states.

    Args:
        content: The text; read one byte more than `max_bytes` to find a longer one.
        max_bytes: Its longest length.
        fallback: Encoding of a text that is not UTF-8; empty to refuse it.

    Raises:
        OversizedInputError: It is longer.
        UnusableInputError: It has another encoding, or is no text.
    """
    if len(content) > max_bytes:
        raise OversizedInputError(f"has more than {max_bytes} bytes; is it the right one?")
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        if not fallback or encoding != "utf-8":
            raise UnusableInputError(
                f"is not UTF-8 text (byte {error.start}); save it as UTF-8"
            ) from None
        text = content.decode(fallback, "replace")
    if "\0" in text:
        raise UnusableInputError("contains NUL characters; save it as UTF-8 text")
    return text


def bounded_json(
    text: str | bytes,
    max_bytes: int = MAX_BYTES,
    parse_number: Callable[[str], Any] | None = None,
    *,
    is_strict: bool = False,
) -> Any:  # noqa: ANN401 - any JSON value
    """Parse JSON.

    Args:
        text: The document.
        max_bytes: Its longest length, in bytes or characters.
        parse_number: Converts numbers; by default to int and float.
        is_strict: True to refuse NaN and Infinity, which RFC 8259 does not allow.

    Raises:
        OversizedInputError: It has too many bytes or values.
        UnusableInputError: It is malformed, or nested more than MAX_DEPTH deep.
    """
    if len(text) > max_bytes:
        raise OversizedInputError(f"more than {max_bytes} bytes")
    openers, commas = _counts(text)
    if openers + commas > MAX_VALUES:
        raise OversizedInputError(f"more than {MAX_VALUES} values")
    document = _parsed(text, parse_number, _refused if is_strict else None)
    if openers > MAX_DEPTH and _is_deeper(document):
        raise UnusableInputError(f"nested more than {MAX_DEPTH} deep")
    return document


def _parsed(
    text: str | bytes,
    parse_number: Callable[[str], Any] | None = None,
    parse_constant: Callable[[str], Any] | None = None,
) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(
            text,
            parse_float=parse_number,
            parse_int=parse_number,
            parse_constant=parse_constant,
        )
    except RecursionError:
        raise UnusableInputError(f"nested more than {MAX_DEPTH} deep") from None
    except json.JSONDecodeError as error:
        raise UnusableInputError(
            f"not valid JSON: {error.msg}: line {error.lineno} column {error.colno}"
        ) from None
    except (ValueError, ArithmeticError):
        # Without the cause: a library's text may contain a part of the document.
        raise UnusableInputError(
            "not valid JSON: not UTF-8 text, or a number is too long"
        ) from None


def _refused(constant: str) -> None:
    raise UnusableInputError(f"not valid JSON: {constant} is no number")


def bounded_object(text: str | bytes, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Parse a JSON object; arguments and errors as in `bounded_json`."""
    document = bounded_json(text, max_bytes)
    if not isinstance(document, dict):
        raise UnusableInputError("not a JSON object")
    return document


def bounded_toml(content: str | bytes, max_bytes: int) -> dict[str, Any]:
    """Parse TOML; numbers with a fraction are Decimal.

    Args:
        content: The document.
        max_bytes: Its longest length, in bytes or characters.

    Raises:
        UnusableInputError: It is malformed or too large.
    """
    text = decoded_text(content, max_bytes) if isinstance(content, bytes) else content
    import tomllib  # noqa: PLC0415 - the sensor child, which reads JSON only, does without its memory

    try:
        return tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, ArithmeticError) as error:
        raise UnusableInputError(f"is not valid TOML: {error}") from None
    except RecursionError:
        raise UnusableInputError("is not valid TOML: it is nested too deep") from None
    except ValueError:
        # Python converts no longer ones.
        raise UnusableInputError(
            "has an integer of over 4,300 digits; write a smaller one"
        ) from None


def _counts(text: str | bytes) -> tuple[int, int]:
    """Return upper bounds of the number of lists and objects, and of further values in them."""
    if isinstance(text, bytes):
        return text.count(b"[") + text.count(b"{"), text.count(b",")
    return text.count("[") + text.count("{"), text.count(",")


def _is_deeper(document: object) -> bool:
    level = [document] if isinstance(document, _LEVELS) else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, _LEVELS)
        ]
        if not level:
            return False
    return True


def one_line(text: str) -> str:
    """Return a text as one printable line.

    Control characters, line breaks, and invisible characters that change the direction of text
    become one space together with the white space beside them.

    Args:
        text: Text from outside: of a module, a server, a silence, the store.
    """
    if text.isprintable():
        return text
    shown = "".join(mark if mark.isprintable() else "\0" for mark in text)
    return _HOLE.sub(" ", shown).rstrip()


def csv_cell(value: object) -> object:
    """Return a value as a cell of CSV, which every export writes: text as one printable line.

    A text that a spreadsheet would evaluate as a formula gets an apostrophe in front; numbers and
    other values stay as they are.
    """
    if not isinstance(value, str):
        return value
    line = one_line(value)
    is_formula = value.startswith(_FORMULA_MARKS) or line.lstrip().startswith(_FORMULA_MARKS)
    return f"'{line}" if is_formula and not _is_number(line) else line


def from_csv_cell(text: str) -> str:
    """Return the text that `csv_cell` neutralized."""
    return text[1:] if text[:1] == "'" and text[1:].startswith(_FORMULA_MARKS) else text


def _is_number(text: str) -> bool:
    # float() takes "+inf", "1_000" and digits of other scripts, too.
    if not set(text) <= set("+-.0123456789eE"):
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Return at most `max_bytes` from the start of a regular file, or of the one that a link names.

    Raises:
        OSError: It cannot be read, or is a FIFO, a device or the like, which could block forever.
    """
    with open_regular(path) as handle, os.fdopen(handle, "rb", closefd=False) as file:
        return file.read(max_bytes)


@contextmanager
def open_regular(path: Path) -> Iterator[int]:
    """Open a regular file for reading, and close its descriptor after the block.

    Raises:
        OSError: It cannot be opened, or is a FIFO, a device or the like.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        yield handle
    finally:
        os.close(handle)


def check_regular(path: Path | str) -> None:
    """Check that a library may open a path: a FIFO could block it forever.

    Raises:
        OSError: It is not a regular file, or cannot be found.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - a text or a path
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a word; None if none is similar.

    Args:
        word: The word as written.
        known: The known names.
    """
    import difflib  # noqa: PLC0415 - a file without errors does without it

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)
