"""The checks of `costprobe fleet watch`: silent hosts, shared drift, outliers, budgets; the lease.

A check that the database does not answer completely keeps its last result. Shared drift: one
workload on one GPU model costs more, or less, on most hosts.

Of several watchers of a fleet one notifies: the one whose lease, a row in the database, is in
force. Their heartbeats are rows of `watcher`, sent through a sink to the fleet's own database.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter

from costprobe.adapters.databases.question import Question
from costprobe.adapters.databases.reader import FleetReader
from costprobe.adapters.http.errors import DeliveryError
from costprobe.core.clock import Clock
from costprobe.core.incident import Fault
from costprobe.core.line_protocol import render
from costprobe.core.money import money
from costprobe.core.periods import DAY_NS, HOUR_NS, iso, period_at
from costprobe.core.records import NS_PER_S, SOFTWARE_TAGS, Point, natural
from costprobe.core.schema import make_point
from costprobe.core.units import counted, duration_words
from costprobe.delivery.contract import SinkConfig
from costprobe.delivery.kinds import build_sink
from costprobe.drift.causes import UNKNOWN
from costprobe.fleet.answers import ARRIVED_NS, FleetAnswers, FleetPeriod, fleet_period
from costprobe.fleet.hosts import ALONE, silent_hosts
from costprobe.fleet.outliers import fleet_outliers
from costprobe.fleet.peers import Outlier, largest
from costprobe.fleet.rollouts import FleetChange, aligned, fleet_changes, kinds_of_hosts
from costprobe.fleet.settings import FleetBudgetConfig, FleetSection, FleetWatchConfig
from costprobe.fleet.spend import STEP_S, fleet_forecast
from costprobe.spend.budget import (
    BudgetStatus,
    budget_point,
    restored_watches,
    watches_document,
)
from costprobe.spend.settings import HISTORY_HOURS, BudgetConfig

logger = logging.getLogger(__name__)

_NO_HISTORY: Final = "there is too little data for a forecast"

# Fewer hosts are no fleet.
LEAST_HOSTS = 3
# More than this share of the hosts must have moved in one direction.
LEAST_SHARE = 0.5
# A drift ends below this share of the change at which it begins.
CLEAR_SHARE = 0.5

# The same time of day: prices and temperatures have a daily pattern.
_DAYS_BEFORE: Final = tuple(range(1, 8))
# The same time of the same weekday: the work of services has a weekly pattern.
_WEEKS_BEFORE: Final = (7, 14, 21)
# Time between two checks of budgets, outliers and drift.
ANALYZE_NS: Final = HOUR_NS
# A host without a row for so long no longer belongs to the fleet.
FORGET_NS: Final = 7 * DAY_NS
# Time over which GPUs are compared, and whose cost is compared with that of the same time of day before.
OUTLIERS_NS: Final = 7 * DAY_NS
DRIFT_S: Final = 6 * 3600
# Windows before the present one in which a cause is sought.
_CAUSE_WINDOWS: Final = 4

# Cost by workload, host and currency.
_Costs = dict[tuple[str, str, str], float]
# Logarithm of the present cost of each workload over the usual one, by host.
Changes = Mapping["DriftKey", Mapping[str, float]]

# A lease lasts so many intervals after the heartbeat that renewed it.
INTERVALS = 3
_ACTIVE, _PASSIVE = "active", "passive"
# UTC in ns of the newest heartbeat of each watcher in each state.
Heartbeats = Mapping[tuple[str, str], int]

# An outlier ends when so many answers in a row do not list it, although it was tested.
CLEAR_ANSWERS: Final = 3

_NAMED_MAX: Final = 20

STATE: Final = "fleet"


class PartialAnswerError(Exception):
    """The database answered for a part of the fleet or of the time; the text gives the reason."""


class DriftKey(NamedTuple):
    """What hosts with the same cost have in common.

    Attributes:
        workload: Name of the probe or service.
        model: GPU models of the host.
        currency: ISO 4217 code.
    """

    workload: str
    model: str
    currency: str

    @property
    def subject(self) -> str:
        """The key as one text."""
        return " ".join(filter(None, self))


@dataclass(frozen=True, slots=True)
class CommonDrift:
    """A change of cost that most hosts share.

    Attributes:
        key: What changed.
        hosts: The hosts whose cost changed, by name.
        compared: Number of hosts with a cost before and after.
        change: Median change of the hosts that changed, as a share: 0.08 for 8 % more.
    """

    key: DriftKey
    hosts: tuple[str, ...]
    compared: int
    change: float


class FleetQuery:
    """Asks the database of a fleet; a partial answer is an error.

    Args:
        reader: The database.
        now_ns: UTC in ns of the evaluation.
    """

    def __init__(self, reader: FleetReader, now_ns: int) -> None:
        self._reader = reader
        self.now_ns = now_ns

    @contextmanager
    def over(
        self,
        start_ns: int,
        end_ns: int,
        bucket_s: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[FleetAnswers]:
        """Yield answers about a period; what the block computes from them may be kept after it.

        Args:
            start_ns: UTC in ns.
            end_ns: UTC in ns.
            bucket_s: Length in s that both are rounded down to; None for that of `fleet_period`.
            labels: Only rows with these tags.

        Raises:
            PartialAnswerError: At the end of the block, if an answer in it was partial.
        """
        if bucket_s is None:
            period = fleet_period(start_ns, end_ns, self.now_ns)
        else:
            step_ns = bucket_s * NS_PER_S
            period = FleetPeriod(
                start_ns // step_ns * step_ns, end_ns // step_ns * step_ns, bucket_s, self.now_ns
            )
        answers = FleetAnswers(self._reader, period, labels or {})
        yield answers
        if answers.problems:
            raise PartialAnswerError("; ".join(answers.problems))


class FleetCheck(ABC):
    """A question that the watcher asks again and again, with the state of its answers.

    Attributes:
        name: Of the check, in messages.
        is_analysis: Whether it is asked each ANALYZE_NS instead of `every`.
        stored: Type of the state.
        state: What the last complete answers showed.
    """

    name: str
    is_analysis: bool = True
    stored: TypeAdapter[Any]
    state: Any

    @abstractmethod
    def evaluate(self, query: FleetQuery) -> list[Point]:
        """Ask the database, and return rows to store; the state changes only if all answers were complete.

        Raises:
            DeliveryError: The database did not answer.
            PartialAnswerError: It answered in part.
        """

    @abstractmethod
    def faults(self) -> list[Fault]:
        """Return what the last complete answers showed."""

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the state as JSON."""
        return self.stored.dump_python(self.state, mode="json")

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Replace the state by one that `document` returned.

        Raises:
            ValueError: It is damaged.
        """
        self.state = self.stored.validate_python(document)


class FleetWatch:
    """The checks of a fleet.

    A check that the database does not answer completely keeps its last result, so that it neither fires nor
    resolves anything, and is asked again at the next evaluation.

    Args:
        config: The section [fleet].
        reader: The database.
        tags: Labels, on every row.
        is_stopping: Whether the process ends: then no check is begun, and an error of one is no failure.

    Attributes:
        hosts: The check for silent hosts.
        budgets: The check of budgets.
        failing: Why checks have no answer, by name.
    """

    def __init__(
        self,
        config: FleetSection,
        reader: FleetReader,
        tags: Mapping[str, str],
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        watch = config.watched
        self._reader = reader
        self._is_stopping = is_stopping
        self.hosts = SilentHosts(config)
        self.budgets = FleetBudgets(watch.budget, tags)
        self._checks: list[FleetCheck] = [self.hosts, FleetDrift(watch)]
        self._checks += [NewOutliers(watch)] if watch.outliers else []
        self._checks += [self.budgets] if watch.budget else []
        self.failing: dict[str, str] = {}
        self._analyzed: dict[str, int] = {}

    def query(self, now_ns: int) -> FleetQuery:
        """Return the database as of an evaluation at a UTC ns."""
        return FleetQuery(self._reader, now_ns)

    def evaluate(self, now_ns: int) -> list[Point]:
        """Run the checks without an answer in this interval of ANALYZE_NS; return the rows that they computed.

        Args:
            now_ns: UTC in ns, the same of all watchers: a multiple of `every`.
        """
        query, interval = self.query(now_ns), now_ns // ANALYZE_NS
        points: list[Point] = []
        for check in self._checks:
            if self._is_stopping():
                break
            if check.is_analysis and self._analyzed.get(check.name) == interval:
                continue
            try:
                points += check.evaluate(query)
            except (DeliveryError, PartialAnswerError) as error:
                self.fail(check.name, str(error))
            except Exception as error:
                if self._is_stopping():
                    break
                # The other checks, and the alert about this one, do not depend on it.
                logger.exception("the check of %s failed", check.name)
                self.fail(check.name, f"unexpected {type(error).__name__}")
            else:
                self.succeed(check.name)
                self._analyzed[check.name] = interval
        return points

    def fail(self, name: str, reason: str) -> None:
        """Record that a check, or another question of the watcher, has no answer."""
        if self.failing.get(name) != reason:
            logger.warning("%s: no complete answer of the fleet's database: %s", name, reason)
        self.failing[name] = reason

    def succeed(self, name: str) -> None:
        """Record an answer."""
        if self.failing.pop(name, None) is not None:
            logger.info("%s: the fleet's database answers again", name)

    def faults(self) -> list[Fault]:
        """Return what the checks found, and those that have no answer."""
        faults = [fault for check in self._checks for fault in check.faults()]
        return faults + [
            Fault(
                "fleet_unread",
                name,
                f"{name}: the fleet's database does not answer completely ({reason}); what was found before"
                " stays",
                "critical",
            )
            for name, reason in self.failing.items()
        ]

    def document(self) -> dict[str, Any]:
        """Return the state of all checks as JSON."""
        return {
            "analyzed": self._analyzed,
            "checks": {check.name: check.document() for check in self._checks},
        }

    def restore(self, document: Mapping[str, Any]) -> None:
        """Restore a state; that of a check that is damaged is discarded."""
        stored = document.get("checks", {})
        self._analyzed = dict(document.get("analyzed", {}))
        for check in self._checks:
            if check.name in stored:
                try:
                    check.restore(stored[check.name])
                except ValueError as error:
                    logger.warning("%s: discarded a damaged state: %s", check.name, error)


class SilentHosts(FleetCheck):
    """Finds hosts without a new row of `agent`.

    If no host of several sends rows, the database receives none: that is a fault of it or of what lies before
    it, and no host is reported. A host that an answer lacks keeps its newest known row.

    Args:
        config: The section [fleet].
    """

    name = "silent hosts"
    is_analysis = False
    # The newest row of each host, and the silent ones.
    stored = TypeAdapter(tuple[dict[str, int], dict[str, str]])

    def __init__(self, config: FleetSection) -> None:
        self._after_ns = int(config.silent_after_s * NS_PER_S)
        self.state: tuple[dict[str, int], dict[str, str]] = ({}, {})

    @property
    def hosts(self) -> int:
        """Number of hosts that belong to the fleet."""
        return len(self.state[0])

    @property
    def silent(self) -> int:
        """Number of silent hosts."""
        return len(self.state[1])

    def evaluate(self, query: FleetQuery) -> list[Point]:
        """See `FleetCheck.evaluate`."""
        now_ns = query.now_ns
        since_ns = now_ns - FORGET_NS
        with query.over(since_ns, now_ns, 1) as answers:
            found = answers.groups(Question("agent", "rss_bytes", "newest", by=("host",)))
        known, silent = self.state
        newest = dict(known)
        for (host,), time_s in found.items():
            newest[host] = max(newest.get(host, 0), round(time_s * NS_PER_S))
        newest = {host: time_ns for host, time_ns in newest.items() if time_ns > since_ns}
        if not newest:
            raise PartialAnswerError("there is no row of any host; check that the hosts push to it")
        last_ns = max(newest.values())
        if len(newest) > 1 and last_ns <= now_ns - self._after_ns:
            raise PartialAnswerError(
                f"no host has sent a row since {iso(last_ns)}; check that the database accepts rows"
            )
        self.state = newest, silent_hosts(newest, silent, now_ns, self._after_ns)
        return []

    def faults(self) -> list[Fault]:
        """Return a fault for each silent host, and for each group of hosts."""
        newest, silent = self.state
        groups: dict[str, list[str]] = defaultdict(list)
        faults = []
        for host, group in sorted(silent.items(), key=lambda item: natural(item[0])):
            groups[group].append(host)
        for host in groups.pop(ALONE, []):
            text = f"{host} is silent: its newest row is of {iso(newest[host])}"
            faults.append(Fault("host_silent", host, text, "warning", {"host": host}))
        for since, hosts in groups.items():
            named = ", ".join(hosts[:_NAMED_MAX])
            more = f" and {len(hosts) - _NAMED_MAX} more" if len(hosts) > _NAMED_MAX else ""
            text = f"{len(hosts):,} of {self.hosts:,} hosts are silent since {since}: {named}{more}"
            labels = {"silent_since": since}
            value = float(len(hosts))
            faults.append(
                Fault("host_silent", f"since {since}", text, "critical", labels, value=value)
            )
        return faults


class FleetBudgets(FleetCheck):
    """Computes the status of each budget, whose rows the rules of budgets evaluate.

    Args:
        budgets: The tables [[fleet.watch.budget]].
        tags: Labels, on every row.
    """

    name = "budgets"

    def __init__(self, budgets: Sequence[FleetBudgetConfig], tags: Mapping[str, str]) -> None:
        self._budgets = budgets
        self._tags = dict(tags)
        self.state = restored_watches(budgets, {})
        self.statuses: tuple[BudgetStatus, ...] = ()

    def evaluate(self, query: FleetQuery) -> list[Point]:
        """See `FleetCheck.evaluate`; the rows are those of `budget`."""
        self.statuses = tuple(_fleet_budget(query, budget) for budget in self._budgets)
        points = []
        for status in self.statuses:
            watch = self.state[status.budget.name]
            watch.take(status)
            points.append(budget_point(status, watch, self._tags))
        return points

    def faults(self) -> list[Fault]:
        """Return nothing: budgets have rules of their own."""
        return []

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the conditions of each budget."""
        return watches_document(self._budgets, self.state)

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Replace the state of the budgets that are unchanged."""
        self.state = restored_watches(self._budgets, document)


def _local_budget(budget: FleetBudgetConfig) -> BudgetConfig:
    """Return a budget of the fleet without its labels."""
    return BudgetConfig.model_validate(budget.model_dump(exclude={"labels"}))


def _fleet_budget(query: FleetQuery, budget: FleetBudgetConfig) -> BudgetStatus:
    """Return the status of a budget: the cost of all devices with its labels.

    Raises:
        DeliveryError: The database did not answer.
        PartialAnswerError: It answered in part.
    """
    end_ns = (query.now_ns - ARRIVED_NS) // HOUR_NS * HOUR_NS
    period = period_at(budget.period, budget.timezone, end_ns - 1)
    since_ns = min(period.start_ns, end_ns - HISTORY_HOURS * HOUR_NS)
    with query.over(since_ns, end_ns, STEP_S, budget.labels) as answers:
        found = {one.currency: one for one in fleet_forecast(answers, period, budget.timezone)}
    own = found.pop(budget.currency, None)
    return BudgetStatus(
        _local_budget(budget),
        period,
        end_ns,
        spent=own.spent if own else 0.0,
        coverage=(own.coverage or 0.0) if own else 0.0,
        remaining=own.remaining if own else None,
        note="" if own and own.remaining else _NO_HISTORY,
        foreign={currency: one.spent for currency, one in found.items()},
    )


class FleetDrift(FleetCheck):
    """Compares the cost of each probe and service with that of the same time before, on all hosts.

    Of a probe it is the cost per inference, of a service the cost without idle time per generated token, or
    per inference.

    Args:
        config: The section [fleet.watch].
    """

    name = "drift"
    # By the subject.
    stored = TypeAdapter(dict[str, Fault])

    def __init__(self, config: FleetWatchConfig) -> None:
        self._at_least = config.drift_at_least
        self.state: dict[str, Fault] = {}

    def evaluate(self, query: FleetQuery) -> list[Point]:
        """See `FleetCheck.evaluate`."""
        changes = _changes(query, _probe_costs, _DAYS_BEFORE)
        for key, found in _changes(query, _service_costs, _WEEKS_BEFORE).items():
            changes[key] |= found
        faults = {}
        for drift in common_drifts(changes, self._at_least, self.state):
            before = self.state.get(drift.key.subject)
            if before is not None and before.cause != UNKNOWN:
                cause, detail = before.cause, before.detail
            else:
                cause, detail = self._coincidence(query, drift)
            faults[drift.key.subject] = _drift_fault(drift, cause, detail)
        self.state = faults
        return []

    def faults(self) -> list[Fault]:
        """Return a fault for each drift."""
        return list(self.state.values())

    def _coincidence(self, query: FleetQuery, drift: CommonDrift) -> tuple[str, str]:
        """Return what changed on most of the hosts at the time, as a cause and a sentence."""
        end_ns = query.now_ns - ARRIVED_NS
        window_ns = DRIFT_S * NS_PER_S
        try:
            with query.over(end_ns - _CAUSE_WINDOWS * window_ns, end_ns) as answers:
                answers.period = aligned(answers.period, DRIFT_S)
                for key in SOFTWARE_TAGS:
                    for change in fleet_changes(answers, key):
                        if 2 * change.hosts >= len(drift.hosts):
                            return key, _change_words(change)
        except (DeliveryError, PartialAnswerError):
            # Asked again at the next evaluation; the drift itself is known.
            return UNKNOWN, ""
        return UNKNOWN, "no version of driver, PyTorch, CUDA, dtype or weights changed on them"


def _changes(
    query: FleetQuery, costs_of: Callable[[FleetAnswers], _Costs], days_before: tuple[int, ...]
) -> dict[DriftKey, dict[str, float]]:
    """Return the change of each workload on each host against the same time some days before."""
    end_ns = query.now_ns - ARRIVED_NS
    window_ns = DRIFT_S * NS_PER_S
    with query.over(end_ns - window_ns, end_ns) as answers:
        after = costs_of(answers)
        models = kinds_of_hosts(answers) if after else {}
    before: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for days in days_before if after else ():
        then_ns = end_ns - days * DAY_NS
        with query.over(then_ns - window_ns, then_ns) as answers:
            for series, cost in costs_of(answers).items():
                before[series].append(cost)
    changes: dict[DriftKey, dict[str, float]] = defaultdict(dict)
    for (workload, host, currency), cost in after.items():
        usual = median(before.get((workload, host, currency), [0.0]))
        if cost > 0 and usual > 0:
            key = DriftKey(workload, ", ".join(models.get(host, ())), currency)
            changes[key][host] = math.log(cost / usual)
    return changes


def common_drifts(
    changes: Changes, at_least: float, present: Collection[str] = ()
) -> list[CommonDrift]:
    """Return the drifts of a fleet, by key.

    Args:
        changes: Of each host.
        at_least: Least change of a host, as a share.
        present: Subjects of drifts that have begun; they end below half of that change.
    """
    drifts = []
    for key, found in sorted(changes.items()):
        least = math.log1p(at_least) * (CLEAR_SHARE if key.subject in present else 1)
        up = {host: change for host, change in found.items() if change >= least}
        down = {host: change for host, change in found.items() if change <= -least}
        moved = max(up, down, key=len)
        if len(found) >= LEAST_HOSTS and len(moved) > LEAST_SHARE * len(found):
            change = math.expm1(median(moved.values()))
            drifts.append(CommonDrift(key, tuple(sorted(moved)), len(found), change))
    return drifts


def _probe_costs(answers: FleetAnswers) -> _Costs:
    by = ("probe", "host", "currency")
    where = {"basis": "probe"}
    groups = answers.groups(
        Question("cost", "cost_per_inference", "median", "median", by=by, where=where)
    )
    return {(probe, host, currency): cost for (probe, host, currency), cost in groups.items()}


def _service_costs(answers: FleetAnswers) -> _Costs:
    where = {"basis": "serving", "served_model": ""}
    paid, counts = ("service", "host", "currency"), ("service", "host")
    total_of, idle_of, tokens_of, inferences_of = answers.each(
        Question("cost", "cost_total", "sum", by=paid, where=where),
        Question("cost", "cost_idle", "sum", by=paid, where=where),
        Question("cost", "tokens_out", "sum", by=counts, where=where),
        Question("cost", "inferences", "sum", by=counts, where=where),
    )
    found = {}
    for (service, host, currency), total in total_of.items():
        busy = total - idle_of.get((service, host, currency), 0.0)
        made = tokens_of.get((service, host)) or inferences_of.get((service, host))
        # Counts of /metrics have no currency.
        if currency and made and busy > 0:
            found[service, host, currency] = busy / made
    return found


def _drift_fault(drift: CommonDrift, cause: str, detail: str) -> Fault:
    key = drift.key
    on = f" on {key.model}" if key.model else ""
    text = (
        f"{key.workload}{on}: cost {drift.change * 100:+.1f} % on {len(drift.hosts):,} of"
        f" {counted(drift.compared, 'host')} in the last {duration_words(DRIFT_S)}, compared with the"
        " same time before"
    )
    labels = {name: value for name, value in key._asdict().items() if value}
    return Fault(
        "fleet_drift",
        key.subject,
        text,
        "warning",
        labels,
        cause=cause,
        detail=detail,
        value=drift.change * 100,
    )


def _change_words(change: FleetChange) -> str:
    words = f"{change.key} {change.before} → {change.after} on {counted(change.hosts, 'host')}"
    beside = [f"{text} on {counted(hosts, 'host')}" for text, hosts in change.beside.items()]
    cost = change.effect.cost or change.effect.time if change.effect else None
    if cost is None:
        effect = "too few other hosts to know its effect"
    else:
        ends = (cost.mean - cost.half_width, cost.mean + cost.half_width)
        low, high = (f"{math.expm1(end) * 100:+.1f}" for end in ends)
        effect = (
            f"its effect, compared with hosts that did not change yet: {math.expm1(cost.mean) * 100:+.1f} %"
            f" ({low} to {high} %)"
        )
    return "; ".join((words, *beside, effect))


@dataclass(slots=True)
class ListedOutlier:
    """An outlier.

    Attributes:
        fault: What is reported.
        missed: Number of answers in a row that tested it and did not list it.
        tested_ns: UTC in ns of the last answer that tested it.
    """

    fault: Fault
    missed: int
    tested_ns: int


class NewOutliers(FleetCheck):
    """Finds outliers among the GPUs, as `costprobe fleet outliers` does.

    A GPU that cannot be tested, because its software or model changed or it has too few runs, stays listed for the
    period.

    Args:
        config: The section [fleet.watch].
    """

    name = "outliers"
    # By the subject.
    stored = TypeAdapter(dict[str, ListedOutlier])

    def __init__(self, config: FleetWatchConfig) -> None:
        self._within = config.within
        self.state: dict[str, ListedOutlier] = {}

    def evaluate(self, query: FleetQuery) -> list[Point]:
        """See `FleetCheck.evaluate`."""
        now_ns = query.now_ns
        end_ns = now_ns - ARRIVED_NS
        with query.over(end_ns - OUTLIERS_NS, end_ns) as answers:
            found = fleet_outliers(answers, self._within)
        tested = {(test.host, test.device) for test in found.tests}
        now = {_subject(one.host, one.device): one for one in found.outliers}
        for subject, listed in list(self.state.items()):
            host, device = listed.fault.labels["host"], listed.fault.labels.get("device", "")
            if (host, device) in tested:
                listed.missed, listed.tested_ns = listed.missed + 1, now_ns
            is_over = listed.missed >= CLEAR_ANSWERS
            if subject not in now and (is_over or now_ns - listed.tested_ns > OUTLIERS_NS):
                del self.state[subject]
        for subject, one in now.items():
            self.state[subject] = ListedOutlier(_outlier_fault(one), 0, now_ns)
        return []

    def faults(self) -> list[Fault]:
        """Return a fault for each outlier."""
        return [listed.fault for listed in self.state.values()]


def _subject(host: str, device: str) -> str:
    return f"{host} {device}".strip()


def _outlier_fault(one: Outlier) -> Fault:
    excesses = [
        f"{excess.mean * 100:+.1f} % {metric}"
        for metric, excess in (("time", one.time), ("energy", one.energy))
        if excess is not None
    ]
    cost = f"; {money(one.cost.mean, one.cost.currency)} a month" if one.cost else ""
    causes = "; ".join(cause.text for cause in one.explanation.causes) or "no signal differs"
    peers = ", ".join(part for part in one.peers if part)
    return Fault(
        "gpu_outlier",
        _subject(one.host, one.device),
        f"{one.host} {one.device or 'all GPUs'}: {' and '.join(excesses)} per inference above"
        f" {one.peer_count:,} peers{cost}",
        "warning",
        {"host": one.host, **({"device": one.device} if one.device else {})},
        cause=one.explanation.name,
        detail=f"{causes}: {one.explanation.action_on(one.device)}; peers: {peers}",
        value=largest(one) * 100,
    )


class Lease:
    """The lease of one watcher.

    Args:
        sink: The sink that writes to the fleet's database.
        name: Name of the watcher: the tag `host` of its heartbeats.
        every_s: Interval of the evaluations in s, the same of all watchers.
        clock: For the sink.

    Attributes:
        is_held: Whether this watcher notifies; unchanged while the database does not answer.
        others_ns: UTC in ns of the newest heartbeat of another watcher that holds it; 0 without one.
    """

    def __init__(self, sink: SinkConfig, name: str, every_s: float, clock: Clock) -> None:
        self._sink = build_sink(sink, clock)
        self._name = name
        self._every_s = every_s
        self.is_held = False
        self.others_ns = 0

    def renew(self, query: FleetQuery) -> None:
        """Read all heartbeats, decide who holds the lease, and write the own heartbeat.

        Args:
            query: The database, at a multiple of the interval.

        Raises:
            DeliveryError: The database did not answer or did not accept the heartbeat.
            PartialAnswerError: It answered in part.
        """
        now_ns, every_ns = query.now_ns, int(self._every_s * NS_PER_S)
        since_ns = now_ns - INTERVALS * every_ns
        # A heartbeat has the time of the evaluation, which may be that of this one.
        with query.over(since_ns - NS_PER_S, now_ns + NS_PER_S, 1) as answers:
            found = answers.groups(Question("watcher", "every_s", "newest", by=("host", "state")))
        newest = {
            (watcher, state): round(time_s * NS_PER_S) for (watcher, state), time_s in found.items()
        }
        self.others_ns = max(
            (
                time_ns
                for (watcher, state), time_ns in newest.items()
                if state == _ACTIVE and watcher != self._name
            ),
            default=0,
        )
        holds = holds_lease(self._name, newest, now_ns, every_ns, held=self.is_held)
        self.is_held = self.is_held and holds
        tags = {"host": self._name, "state": _ACTIVE if holds else _PASSIVE}
        point = make_point("watcher", tags, {"every_s": self._every_s}, now_ns)
        self._sink.post(self._sink.encode(render(point).encode()))
        self.is_held = holds

    def close(self) -> None:
        """Close the connection."""
        self._sink.close()


def holds_lease(own: str, newest: Heartbeats, now_ns: int, every_ns: int, *, held: bool) -> bool:
    """Return whether a watcher holds the lease from now on.

    It keeps a lease that it held until another watcher holds one in force, so that none changes hands while
    the database is away. A free one goes, after an interval in which all watchers have sent a heartbeat, to the
    smallest name; of two in force, as after a network partition, the smaller name keeps it.

    Args:
        own: Name of the watcher.
        newest: The heartbeats of all watchers, its own included.
        now_ns: UTC in ns of the present evaluation, at a multiple of the interval.
        every_ns: Length of the interval in ns, the same of all watchers.
        held: Whether it held the lease before.
    """
    fresh = {key: at_ns for key, at_ns in newest.items() if at_ns > now_ns - INTERVALS * every_ns}
    active = {watcher for watcher, state in fresh if state == _ACTIVE}
    if active:
        return own == min(active)
    if held:
        return True
    waited = fresh.get((own, _PASSIVE), now_ns) <= now_ns - every_ns
    return waited and own == min(watcher for watcher, _ in fresh)
