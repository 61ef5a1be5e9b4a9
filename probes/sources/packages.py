"""Packages that a source needs in the probe's interpreter."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterable
from types import ModuleType

from probes.errors import ConfigError


def needed(module: str, package: str) -> ModuleType:
    """Imports what a source needs.

    Raises:
        ConfigError: It is not there, or does not fit this interpreter's torch.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError, RuntimeError) as error:
        words = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"{package} cannot be imported by {sys.executable} ({words}); install the build that"
            " fits its torch there, or set python in [[probe]] to the interpreter that has it"
        ) from error


def offline() -> None:
    """Keeps the packages from asking their hub."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"


def near(name: str, known: Iterable[str]) -> str:
    """Names like the one that is not there, as the end of a sentence."""
    found = difflib.get_close_matches(name, list(known), n=3)
    return f"; there are {', '.join(found)}" if found else ""
