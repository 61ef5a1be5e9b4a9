"""The dashboard and its API as one ASGI application over a read-only store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.read import StoreReader
from costprobe.core.clock import Clock
from costprobe.ui.dashboard.budgets import DashboardBudgets, spend_document
from costprobe.ui.dashboard.charts import (
    incidents_document,
    marks_document,
    sweeps_document,
    trend_document,
)
from costprobe.ui.dashboard.guard import (
    STATIC_FILES,
    Guard,
    error_response,
    json_response,
    page_route,
    refused,
    unknown,
)
from costprobe.ui.dashboard.now import host_rows, now_document
from costprobe.ui.dashboard.parameters import (
    ParameterError,
    known,
    label_filter,
    time_range,
    trend_query,
)
from costprobe.ui.dashboard.trend import trend_answer

# Each query uses a CPU for up to a second: more concurrent ones would disturb the host's probes.
READS_AT_ONCE = 2
READ_WAIT_S = 20.0
Pairs = list[tuple[str, str]]
Answer = Callable[[StoreReader, Pairs, int], dict[str, Any]]


class BusyError(Exception):
    """Too many queries are in progress."""


def dashboard(
    store: Path,
    clock: Clock,
    allowed_hosts: Collection[str] = (),
    budgets: DashboardBudgets | None = None,
) -> Starlette:
    """Build the application.

    Args:
        store: File of the store; it may not exist yet.
        clock: Clocks of the host.
        allowed_hosts: Host names of the server, beside localhost and IP addresses.
        budgets: Configured budgets; none by default.
    """
    reads = BoundedSemaphore(READS_AT_ONCE)
    planned = DashboardBudgets(clock) if budgets is None else budgets

    def of_budgets(reader: StoreReader, pairs: Pairs, now_ns: int) -> dict[str, Any]:  # noqa: ARG001 - an Answer's arguments
        known(pairs, ())
        return planned.document(reader)

    def of_now(reader: StoreReader, pairs: Pairs, now_ns: int) -> dict[str, Any]:
        label = "=".join(*label_filter(known(pairs, ("label",))).items() or [("",)])
        day = planned.day(reader, is_waited_for=False)
        return now_document(host_rows(reader, now_ns), planned.overview(reader), day, label)

    def of_spend(reader: StoreReader, pairs: Pairs, now_ns: int) -> dict[str, Any]:
        known(pairs, ())
        assumed = planned.overview(reader).assumed
        note = f"; prices in {' and '.join(sorted(assumed))} are assumed" if assumed else ""
        return spend_document(reader, planned.day(reader) or (), now_ns, note)

    def route(path: str, answer: Answer) -> Route:
        def endpoint(request: Request) -> Response:
            pairs = request.query_params.multi_items()
            with _read_slot(reads), closing(StoreReader.open(store)) as reader:
                answered = answer(reader, pairs, clock.time_ns())
            return json_response(answered)

        return Route(path, endpoint)

    return Starlette(
        routes=[
            page_route("index.html"),
            *(route(path, answer) for path, answer in ANSWERS.items()),
            route("/api/now", of_now),
            route("/api/spend", of_spend),
            route("/api/budgets", of_budgets),
            STATIC_FILES,
        ],
        middleware=[Middleware(Guard, allowed_hosts=allowed_hosts)],
        exception_handlers={
            ParameterError: refused,
            StoreError: _unreadable,
            BusyError: _busy,
            404: unknown,
        },
    )


def _trend(reader: StoreReader, pairs: Pairs, now_ns: int) -> dict[str, Any]:
    query = trend_query(pairs, now_ns)
    return trend_document(query, trend_answer(reader, query))


def _marks(reader: StoreReader, pairs: Pairs, now_ns: int) -> dict[str, Any]:
    of = ("device", "probe", "service")
    parameters = known(pairs, ("since", "until", *of))
    tags = {name: parameters[name] for name in of if name in parameters}
    return marks_document(reader, time_range(parameters, "24h", now_ns), tags)


def _incidents(reader: StoreReader, pairs: Pairs, now_ns: int) -> dict[str, Any]:
    parameters = known(pairs, ("since", "until"))
    return incidents_document(reader, time_range(parameters, "7d", now_ns))


def _sweeps(reader: StoreReader, pairs: Pairs, now_ns: int) -> dict[str, Any]:
    known(pairs, ())
    return sweeps_document(reader, now_ns)


ANSWERS: dict[str, Answer] = {
    "/api/trend": _trend,
    "/api/marks": _marks,
    "/api/incidents": _incidents,
    "/api/sweeps": _sweeps,
}


@contextmanager
def _read_slot(reads: BoundedSemaphore) -> Iterator[None]:
    if not reads.acquire(timeout=READ_WAIT_S):
        raise BusyError
    try:
        yield
    finally:
        reads.release()


def _unreadable(request: Request, error: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    return error_response(503, str(error))


def _busy(request: Request, error: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    return error_response(503, "too many concurrent requests; retry later")
