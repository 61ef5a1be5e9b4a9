"""Limiting the cardinality of served models: a bounded number of names, the rest as "other".

A server chooses the model names in its labels: an adapter for each tenant, a path with a date. Each
name creates new series in every database, so a service has at most MAX_NAMES.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from costprobe.core.records import NS_PER_S

MAX_NAMES: Final = 64
OTHER: Final = "other"
# A name that was not seen for this time may be replaced, in s.
KEPT_S: Final = 7 * 86_400.0


class ModelNames:
    """Names that a server or a cluster chose, a limited number of them at a time.

    Args:
        utc_ns: UTC ns.
        known: Names that already have series, and UTC in ns at which they were last seen.
        names_max: Their number.
    """

    def __init__(
        self,
        utc_ns: Callable[[], int],
        known: Mapping[str, int] | None = None,
        names_max: int = MAX_NAMES,
    ) -> None:
        self._utc_ns = utc_ns
        self._names_max = names_max
        known_ns = {name: at_ns for name, at_ns in (known or {}).items() if name not in ("", OTHER)}
        newest = sorted(known_ns, key=lambda name: known_ns[name], reverse=True)[:names_max]
        self._seen_ns = {name: known_ns[name] for name in newest}

    def name(self, model: str) -> str:
        """Return the name under which a model is counted: its own, or "other" beyond the limit.

        Args:
            model: Its name at the server; "" if there is none, which is returned unchanged.
        """
        if model in ("", OTHER):
            return model
        now_ns = self._utc_ns()
        if model not in self._seen_ns and len(self._seen_ns) >= self._names_max:
            self._drop_old(now_ns)
            if len(self._seen_ns) >= self._names_max:
                return OTHER
        self._seen_ns[model] = now_ns
        return model

    def _drop_old(self, now_ns: int) -> None:
        since_ns = now_ns - int(KEPT_S * NS_PER_S)
        self._seen_ns = {name: at_ns for name, at_ns in self._seen_ns.items() if at_ns >= since_ns}
