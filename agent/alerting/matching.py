"""Which series, incidents and notifiers a pattern means."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from agent.model import Severity

SEVERITIES: Mapping[Severity, int] = {"info": 0, "warning": 1, "critical": 2}


def matches(patterns: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """True if every pattern fits its label; * and ? are wildcards, a missing label is empty."""
    return all(fnmatchcase(labels.get(name, ""), pattern) for name, pattern in patterns.items())
