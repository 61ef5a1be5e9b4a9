"""Which served models have series of their own: as many as a database can bear, the rest together.

A server's label names its models, and what stands in it is the server's to choose: an adapter for
each tenant, a path with a date. Each name that is taken over makes new series in every database,
which bear few; so a service has a bounded number of names, and what comes beyond counts as "other".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from agent.model import NS_PER_S

MAX_NAMES: Final = 64
OTHER: Final = "other"
# A name that was not seen for so long gives its place up, in s: models do follow each other.
KEPT_S: Final = 7 * 86_400.0


class ModelNames:
    """The names of one service: at most 64, of which none is new more than once in a week's stay.

    Args:
        utc_ns: UTC ns.
        known: Names that have series already, and UTC in ns at which they were last seen.
    """

    def __init__(self, utc_ns: Callable[[], int], known: Mapping[str, int] | None = None) -> None:
        self._utc_ns = utc_ns
        named = {name: at_ns for name, at_ns in (known or {}).items() if name not in ("", OTHER)}
        newest = sorted(named, key=lambda name: named[name], reverse=True)[:MAX_NAMES]
        self._seen_ns = {name: named[name] for name in newest}

    def name(self, model: str) -> str:
        """The name under which a model counts: its own while there is a place, else "other".

        Args:
            model: What the server calls it; "" where it names none, which stays so.
        """
        if model in ("", OTHER):
            return model
        now_ns = self._utc_ns()
        if model not in self._seen_ns and len(self._seen_ns) >= MAX_NAMES:
            self._forget(now_ns)
            if len(self._seen_ns) >= MAX_NAMES:
                return OTHER
        self._seen_ns[model] = now_ns
        return model

    def _forget(self, now_ns: int) -> None:
        since_ns = now_ns - int(KEPT_S * NS_PER_S)
        self._seen_ns = {name: at for name, at in self._seen_ns.items() if at >= since_ns}
