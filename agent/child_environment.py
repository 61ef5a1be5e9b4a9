"""What a child process gets of our environment: all of it but secrets and systemd's own words to us.

A list of what to leave out, and not of what to pass: a probe is to run as the serving stack does,
whose allocators, kernels and caches are set by variables that nobody can list, and one that was
silently left out would change what is measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# The working directory has the name of a password.
_HARMLESS: Final = frozenset({"PWD"})
# What systemd tells the service's main process alone: systemd.exec(5), sd_notify(3).
_OF_THE_SERVICE: Final = frozenset(
    {
        "CREDENTIALS_DIRECTORY",
        "ENCRYPTED_CREDENTIALS_DIRECTORY",
        "FDSTORE",
        "JOURNAL_STREAM",
        "LISTEN_FDNAMES",
        "LISTEN_FDS",
        "LISTEN_PID",
        "NOTIFY_SOCKET",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
    }
)
# Whole words between underscores where they are short, or TOKENIZERS_PARALLELISM would be one.
_SECRET_NAME: Final = re.compile(
    r"(?:token|secret|passwo?r?d|passphrase|credential|api_?key|cookie|connection_string)s?(?:_|$)"
    r"|(?:^|_)(?:auth|authorization|key|keys|pass|pat|pw|pwd|dsn|webhook)(?:_|$)",
    re.IGNORECASE,
)
# An address with a password in it, or a token in a user's place: of a proxy, a database, an index.
_ADDRESS_WITH_USER: Final = re.compile(r"://[^/\s@]+@")


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a child may have.

    Args:
        environ: Our own environment.
    """
    return {name: value for name, value in environ.items() if not is_withheld(name, value)}


def is_withheld(name: str, value: str) -> bool:
    """True for a variable that is a secret by its name or its value, or the service's own.

    Args:
        name: The variable.
        value: What it holds.
    """
    if name in _HARMLESS:
        return False
    if name in _OF_THE_SERVICE or _SECRET_NAME.search(name):
        return True
    return _ADDRESS_WITH_USER.search(value) is not None
