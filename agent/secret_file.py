"""Reading a secret from its file: what is wrong is said, what is in it never."""

from __future__ import annotations

from pathlib import Path

MAX_SECRET_BYTES = 16 * 1024


def read_secret(path: Path, what: str) -> str:
    """The secret in a file, without white space around it; read anew, for it may be rotated.

    Args:
        path: The file.
        what: What it is, for people: "token", "password", "address".

    Raises:
        ValueError: It cannot be read, or is nothing that a header could hold; the text names the
            file and never holds what is in it.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    if len(content) > MAX_SECRET_BYTES:
        raise ValueError(f"{path}: is longer than {MAX_SECRET_BYTES} bytes")
    try:
        secret = content.decode().strip()
    except UnicodeDecodeError:
        # Without the cause: its text would hold what was in the file.
        raise ValueError(f"{path}: holds no {what}: it is no plain text") from None
    if not secret:
        raise ValueError(f"{path}: is empty; write the {what} into it")
    if not secret.isprintable():
        # A header must not hold it, and the library that says so would say it aloud.
        raise ValueError(f"{path}: holds more than one line, or no plain text")
    return secret
