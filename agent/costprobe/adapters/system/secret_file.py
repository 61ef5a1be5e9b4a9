"""Reading a secret from a file; no error contains it, and no text shows it from then on."""

from __future__ import annotations

from pathlib import Path

from costprobe.adapters.system.redaction import REDACTOR
from costprobe.core.regular_file import read_regular

MAX_SECRET_BYTES = 16 * 1024


def read_secret(path: Path, purpose: str) -> str:
    """Read a secret, without surrounding white space; the redactor masks it from then on.

    Args:
        path: The file.
        purpose: Its name in messages: "token", "password", "URL".

    Raises:
        ValueError: It cannot be read, or is not one line of printable text; the message names the
            file and never contains its content.
    """
    try:
        content = read_regular(path, MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    if len(content) > MAX_SECRET_BYTES:
        raise ValueError(f"{path}: is longer than {MAX_SECRET_BYTES} bytes")
    try:
        secret = content.decode().strip()
    except UnicodeDecodeError:
        # Without the cause: its text would contain the content.
        raise ValueError(f"{path}: contains no {purpose}: it is not text") from None
    if not secret:
        raise ValueError(f"{path}: is empty; write the {purpose} into it")
    if not secret.isprintable():
        # It is not valid in a header, and the HTTP library's error would contain it.
        raise ValueError(f"{path}: contains more than one line, or unprintable characters")
    REDACTOR.learn(secret)
    return secret
