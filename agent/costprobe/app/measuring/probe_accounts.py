"""Price every probe run, and store it as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from costprobe.app.accounting.ledger import Ledger, restored
from costprobe.app.accounting.remembered_prices import RememberedPrices, terms_state
from costprobe.core.clock import Clock, row_ns
from costprobe.core.event_points import event_point
from costprobe.core.records import NS_PER_S, Event
from costprobe.domain.costing.probe.account import ProbeState, account_run
from costprobe.domain.costing.probe.rolling import WINDOWS_S, RollingCosts, RollingSample
from costprobe.domain.costing.probe.run import MeasuredRun, ProbeReport
from costprobe.domain.pricing.book import Terms

# Costs per inference of (device, probe, currency) since a UTC ns, oldest first.
CostHistory = Callable[[str, str, str, int], Iterable[RollingSample]]


class ProbeAccounts:
    """Price probe runs and store them.

    Args:
        prices: The prices, with the terms before.
        ledger: Stores rows.
        clock: The host's clocks.
        tags: Host and static labels, on every row.
        history: Stored costs, from which the rolling windows are filled after a start.
    """

    def __init__(
        self,
        prices: RememberedPrices,
        ledger: Ledger,
        clock: Clock,
        tags: Mapping[str, str],
        history: CostHistory,
    ) -> None:
        self._prices = prices
        self._ledger = ledger
        self._clock = clock
        self._tags = dict(tags)
        self._history = history
        self._states: dict[tuple[str, str], ProbeState] = {}

    def take_event(self, event: Event) -> None:
        """Store an event of a probe."""
        self._ledger.append([event_point(event, self._tags)])

    def take_probe(self, run: MeasuredRun) -> ProbeReport:
        """Store a probe run as priced rows of `probe` and `cost`, with its events."""
        device, probe = run.result.device, run.result.probe
        time_ns = row_ns(self._clock, run.result.window_end_ns)
        prices = self._prices.at(device, time_ns)
        before = self._state(run, prices.terms, time_ns)
        accounted = account_run(run, prices, before, self._tags, time_ns)
        self._states[device, probe] = accounted.state
        document = accounted.state.document()
        changed = {_state_name(device, probe): document} if document != before.document() else {}
        # In one transaction: a crash between them would lose or repeat an event.
        self._ledger.append(accounted.rows, {**changed, **terms_state(device, prices)})
        return accounted.report

    def _state(self, run: MeasuredRun, terms: Terms | None, time_ns: int) -> ProbeState:
        """Return the probe's state, with rolling costs in the currency of the terms in force."""
        device, probe = run.result.device, run.result.probe
        state = self._states.get((device, probe))
        if state is None:
            name = _state_name(device, probe)
            state = restored(self._ledger, name, ProbeState.from_document) or ProbeState()
        if terms is None:
            return state
        currency = terms.rate.currency
        # After the wall clock was set back only the stored rows are complete: samples taken while it
        # was ahead removed older ones.
        is_continued = state.costs is not None and state.costs.newest_ns <= time_ns
        if is_continued and state.currency == currency:
            return state
        since_ns = time_ns - max(WINDOWS_S.values()) * NS_PER_S
        stored = self._history(device, probe, currency, since_ns)
        costs = RollingCosts.of(run.every_s, (cost for cost in stored if cost.time_ns < time_ns))
        return replace(state, costs=costs, currency=currency)


def _state_name(device: str, probe: str) -> str:
    return f"probe {device} {probe}"
