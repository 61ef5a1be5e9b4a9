"""Connections of the dashboard: limits per client address, and deadlines of requests and responses."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from costprobe.adapters.http.server import ConnectionSlots, SlotLimits
from costprobe.ui.dashboard.live import LIFETIME_S, LISTENERS_MAX, LIVE_PATH

LIMITS: Final = SlotLimits(
    total=4 * LISTENERS_MAX,
    per_address=LISTENERS_MAX,
    reserve=LISTENERS_MAX // 2,
    request_s=10.0,
    response_s=60.0,
)
# A live stream ends by itself before.
LIVE_S: Final = LIFETIME_S + LIMITS.response_s


class BoundedProtocol(H11Protocol):
    """A connection of uvicorn in a slot; uvicorn itself has no deadline for a request.

    Args:
        slots: Slots of the server.
        args: uvicorn's own.
    """

    def __init__(self, slots: ConnectionSlots, *args: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*args, **options)
        self._slots = slots

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Occupy a slot, or close the connection without an answer."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        admission = self._slots.admit(self, address, self.loop.time())
        if isinstance(admission.displaced, BoundedProtocol):
            admission.displaced.abort()
        if not admission.is_accepted:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the slot."""
        self._slots.release(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle received data; a request with its whole body has more time for its response."""
        super().handle_events()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            is_live = self.scope["path"] == LIVE_PATH
            self._slots.has_request(self, self.loop.time(), LIVE_S if is_live else None)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._slots.awaits_request(self, self.loop.time())
        super().on_response_complete()

    def abort(self) -> None:
        """Close the connection at once."""
        self.transport.abort()
