"""The environment of a child process: ours without secrets and systemd's variables.

It is a denylist: a probe must run as the serving stack does, whose allocators, kernels and caches
depend on variables that cannot be enumerated, and a missing one would change the measurement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# PWD matches the pattern of a password variable.
_HARMLESS: Final = frozenset({"PWD"})
# Set by systemd for the main process only: systemd.exec(5), sd_notify(3).
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
# Short words match only between underscores: TOKENIZERS_PARALLELISM is not a secret.
_SECRET_NAME: Final = re.compile(
    r"(?:token|secret|passwo?r?d|passphrase|credential|api_?key|cookie|connection_string)s?(?:_|$)"
    r"|(?:^|_)(?:auth|authorization|key|keys|pass|pat|pw|pwd|dsn|webhook)(?:_|$)",
    re.IGNORECASE,
)
# A URL with a user, password or token: of a proxy, a database, a package index.
_URL_WITH_USER: Final = re.compile(r"://[^/\s@]+@")


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a child process.

    Args:
        environ: Our own environment.
    """
    return {name: value for name, value in environ.items() if not is_withheld(name, value)}


def is_withheld(name: str, value: str) -> bool:
    """Return whether a variable is a secret by its name or value, or only for the service.

    Args:
        name: Name of the variable.
        value: Its value.
    """
    if name in _HARMLESS:
        return False
    if name in _OF_THE_SERVICE or _SECRET_NAME.search(name):
        return True
    return _URL_WITH_USER.search(value) is not None
