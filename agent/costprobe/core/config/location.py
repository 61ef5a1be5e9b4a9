"""Paths of the configuration and of its store, without validating the file.

Commands that only read the store or query the daemon use these, because validation takes ten times
as long as the rest of such a command.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from costprobe.core.outside import bounded_toml, read_regular

SYSTEM_PATH = Path("/etc/costprobe/costprobe.toml")
SYSTEM_STORE = Path("/var/lib/costprobe/costprobe.db")
MAX_FILE_BYTES = 1 << 20


def config_path(given_path: str | None) -> Path | None:
    """Return the given file, else the system's; None if there is none (demo mode)."""
    if given_path:
        return Path(given_path)
    return SYSTEM_PATH if SYSTEM_PATH.exists() else None


def default_store(path: Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the default store: the service's, or the user's in demo mode.

    Args:
        path: The configuration file; None in demo mode.
        environ: The environment.
    """
    if path is not None:
        return SYSTEM_STORE
    state_home = environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_home) / "costprobe" / "costprobe.db"


def store_of(path: Path | None) -> Path:
    """Return the store of a configuration file: the configured one, else `default_store`.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is not TOML or too large, or `store.path` is not text.
    """
    return default_store(None) if path is None else _named_store(path) or default_store(path)


def _named_store(path: Path) -> Path | None:
    """Return the store that a file configures; None if it configures none.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is not TOML or too large, or `store.path` is not text.
    """
    content = read_regular(path, MAX_FILE_BYTES + 1)
    store = bounded_toml(content, MAX_FILE_BYTES).get("store", {})
    store_path = store.get("path", "") if isinstance(store, dict) else None
    if not isinstance(store_path, str) or "\0" in store_path:
        raise ValueError("store.path is not a path")
    return Path(store_path) if "path" in store else None
