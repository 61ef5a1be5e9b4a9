"""Optional packages of a model source, in the probe's interpreter."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterable
from types import ModuleType

from costprobe_probes.errors import ProbeConfigError


def import_package(module: str, package: str) -> ModuleType:
    """Import a module of an optional package.

    Raises:
        ProbeConfigError: It is missing, or does not match the interpreter's torch.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError, RuntimeError) as error:
        words = " ".join(str(error).split())[:200]
        raise ProbeConfigError(
            f"{package} cannot be imported by {sys.executable} ({words}); install the build that"
            " matches its torch there, or set python in [[probe]] to the interpreter that has it"
        ) from error


def offline() -> None:
    """Disable network access of the Hugging Face libraries."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"


def similar_names(name: str, known: Iterable[str]) -> str:
    """Return similar names as the end of a sentence; empty if there are none."""
    matches = difflib.get_close_matches(name, list(known), n=3)
    return f"; similar names: {', '.join(matches)}" if matches else ""
