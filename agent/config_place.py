"""Where the configuration is, and the store that it names; without validating the rest of it.

What only looks at the store, or asks the daemon, answers at once by this: validating a whole file
takes ten times as long as all that it has to do.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

SYSTEM_PATH = Path("/etc/infercost/infercost.toml")
SYSTEM_STORE = Path("/var/lib/infercost/infercost.db")
MAX_FILE_BYTES = 1 << 20


def config_path(named: str | None) -> Path | None:
    """The file that was named, else the system's; None where there is none: a try-out."""
    if named:
        return Path(named)
    return SYSTEM_PATH if SYSTEM_PATH.exists() else None


def default_store(path: Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """The store where the configuration names none: the service's, or the user's in a try-out.

    Args:
        path: The configuration file; None in a try-out.
        environ: The environment.
    """
    if path is not None:
        return SYSTEM_STORE
    state_home = environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_home) / "infercost" / "infercost.db"


def named_store(path: Path) -> Path | None:
    """The store that a file names; None where it names none.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no TOML, too large, or holds no path there.
    """
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError("the file is too large")
    store = tomllib.loads(content.decode()).get("store", {})
    if not isinstance(store, dict) or not isinstance(store.get("path", ""), str):
        raise ValueError("store.path is no path")  # noqa: TRY004 - one error for a bad file
    return Path(store["path"]) if "path" in store else None
