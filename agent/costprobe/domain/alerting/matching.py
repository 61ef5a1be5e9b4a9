"""Patterns that select series, incidents and notifiers."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from costprobe.core.records import Severity

SEVERITIES: Mapping[Severity, int] = {"info": 0, "warning": 1, "critical": 2}


def matches(patterns: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether every pattern matches its label; * and ? are wildcards, a missing label is empty."""
    return all(fnmatchcase(labels.get(name, ""), pattern) for name, pattern in patterns.items())
