"""Weeks of a simulated host with eight GPUs, two probes and two services: a drift, a new price, new software, a budget.

All values are from seeded streams; none was measured.
"""

import math
import random
import statistics
from bisect import bisect_right
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path

from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.records import TOGETHER, Event
from costprobe.core.schema import event_point, make_point
from fakes import rows
from fakes.clock import FakeClock

CONFIG = Path(__file__).with_name("sample_host.toml")
S = 10**9
MINUTE_NS, HOUR_NS, DAY_NS = 60 * S, 3600 * S, 86_400 * S
# When the pictures are taken.
NOW_NS = int(datetime(2026, 11, 18, 15, 40, tzinfo=UTC).timestamp()) * S
ZONE = "Europe/Berlin"
# How long before now the price fell, the software changed, and gpu0 began to drift.
CHEAPER_AGO_NS, SOFTWARE_AGO_NS, DRIFT_AGO_NS = (
    159 * HOUR_NS + 40 * MINUTE_NS,
    19 * HOUR_NS,
    6 * HOUR_NS,
)
DRIFT_RAMP_NS = 40 * MINUTE_NS
LATENCY_DRIFT = 0.085
BEFORE, AFTER = 4.10, 3.98
MONEY_PER_J = 0.14 * 1.3 / 3.6e6
HOST = {"host": "gpu-01"}
DEVICES = tuple(f"gpu{number}" for number in range(8))
# Probe, batch, latency in ms, joules each; on the devices of DEVICES[:4].
PROBES = (("encoder", 32, 11.62, 0.231), ("ranker", 128, 18.4, 0.078))
PROBED = DEVICES[:4]
# A service, its devices, its models with their share of requests, requests a second, tokens in and out of each.
SERVICES = (
    ("chat", DEVICES[4:7], (("llama-3.1-8b", 0.7), ("llama-3.1-70b", 0.3)), 9.0, 900, 260),
    ("search", DEVICES[7:], (("", 1.0),), 60.0, 0, 0),
)
# Teams of the service chat, with their shares of its cost.
TEAMS = {"search": 0.34, "assistant": 0.27, "support": 0.16, "research": 0.08, "unattributed": 0.15}


_CAUSE = "cooling"
_REASON = (
    "cause: cooling 94 % (86 to 100 %): thermal throttling 11 % of the time, temperature 65 → 87 °C,"
    " SM clock 1,980 → 1,819 MHz. To do: check fan and airflow"
)
_DRIFT = (
    "cost per inference of encoder on gpu0 is +8.4 % at constant price (+$0.03 per million)"
    " since 09:40 UTC, worth $210 a month of this device's capacity if it is fully used"
)
_BUDGET = "budget gpus: the forecast for November 2026 is above the $23,500 that are planned"


@dataclass(frozen=True)
class Detail:
    """How dense the rows are: seconds between them in the last days, and before; and these days."""

    device: tuple = (60, 300, 8)
    probe: tuple = (300, 3600, 8)
    service: tuple = (300, 900, 8)


# For pictures; as the daemon keeps them; few enough rows for a test.
PICTURED = Detail()
FULL = Detail((10, 3600, 7), (300, 3600, 90), (900, 3600, 90))
COARSE = Detail((900, 900, 0), (3600, 3600, 0), (3600, 3600, 0))


def made(folder, now_ns=NOW_NS, days=35, detail=PICTURED):
    """Write a configuration and its store, whose rows end at a time; return the file's path."""
    host = _Host(now_ns, days, detail)
    cheaper = datetime.fromtimestamp(host.cheaper_ns / S, UTC).date()
    file = folder / "costprobe.toml"
    config = CONFIG.read_text().replace("{cheaper}", str(cheaper))
    file.write_text(f'[store]\npath = "{folder}/costprobe.db"\n{config}')
    store = Store.open(folder / "costprobe.db", FakeClock(now_ns))
    for some in (*host.series(), host.sweep(), host.alerts()):
        store.append(some)
    store.append([event_point(event, HOST) for event in host.events()])
    store.close()
    return file


def with_daemon(file, now_ns=NOW_NS):
    """Write what a daemon would have of this host: its status, and what fires; return the file's path."""
    with closing(Store.open(file.parent / "costprobe.db", FakeClock(now_ns))) as store:
        store.put_state("status", rows.status(store.path, "gpu-01", now_ns - 12 * DAY_NS, DEVICES))
        store.put_state("alerts", _firing(now_ns))
    return file


def settled(file, until_ns, *, keeps_rows=True):
    """Write the rows of full hours, beside those as measured or in their place; return the file's path."""
    with closing(Store.open(file.parent / "costprobe.db", FakeClock(until_ns))) as store:
        store.settle(until_ns, limit=10**9)
        since = KeepSince(until_ns, until_ns, 0, 0)
        while not (keeps_rows or store.retain(since).is_done):
            pass
    return file


class _Host:
    def __init__(self, now_ns, days, detail):
        self.now_ns, self.days, self.detail = now_ns, days, detail
        self.cheaper_ns = now_ns - CHEAPER_AGO_NS
        self.drift_ns = now_ns - DRIFT_AGO_NS
        self.rng = random.Random(11)

    def series(self):
        """The rows of each device, probe and service."""
        for device in DEVICES:
            yield self._device(device)
        for name, batch, latency_ms, energy_j in PROBES:
            for number, device in enumerate(PROBED):
                yield self._probe(name, device, batch, latency_ms * (1 + 0.004 * number), energy_j)
        for service in SERVICES:
            yield self._service(*service)
        for device in PROBED:
            yield self._unserved(device)

    def _times(self, fine_s, coarse_s, fine_days):
        """End times in UTC ns with durations in s, oldest first."""
        time_ns = self.now_ns - self.days * DAY_NS
        while True:
            length_s = fine_s if time_ns >= self.now_ns - fine_days * DAY_NS else coarse_s
            time_ns += length_s * S
            if time_ns > self.now_ns - 20 * S:
                return
            yield time_ns, length_s

    def _per_hour(self, time_ns):
        return AFTER if time_ns > self.cheaper_ns else BEFORE

    def _demand(self, time_ns):
        """The demand, 0 to 1: low at night, lower on weekends."""
        hour = time_ns / HOUR_NS % 24
        is_weekend = (time_ns // DAY_NS + 3) % 7 >= 5
        level = 0.5 - 0.5 * math.cos((hour - 3) / 24 * 2 * math.pi)
        noise = self.rng.gauss(0, 0.04)
        return min(1.0, max(0.0, level * (0.55 if is_weekend else 1.0) + noise))

    def _hot(self, time_ns, device):
        """The progress of gpu0's drift, 0 to 1."""
        gone = (time_ns - self.drift_ns) / DRIFT_RAMP_NS if device == "gpu0" else 0.0
        return min(1.0, max(0.0, gone))

    def _device(self, device):
        for time_ns, length_s in self._times(*self.detail.device):
            demand = self._demand(time_ns)
            is_idle = demand < 0.12
            hot = self._hot(time_ns, device)
            power_w = 88.0 + self.rng.gauss(0, 1) if is_idle else 300 + 370 * demand - 25 * hot
            per_hour = self._per_hour(time_ns)
            yield rows.device(
                {**HOST, "device": device},
                time_ns,
                length_s,
                per_hour,
                power_w,
                cost=per_hour * length_s / 3600 + MONEY_PER_J * power_w * length_s,
                power_max_w=power_w + self.rng.uniform(2, 18),
                util_pct=100 * (0.06 + 0.8 * (0.1 + 0.9 * demand)),
                mem_util_pct=0.0 if is_idle else 20 + 40 * demand,
                temp_c=38 + 26 * demand + 22 * hot + self.rng.gauss(0, 0.3),
                sm_clock_mhz=1980.0 - 161 * hot,
                power_limit_w=700.0,
                throttle_thermal_s=0.11 * length_s * hot,
                throttle_power_s=0.0,
                mem_used_bytes=(52 if device == "gpu0" else 71) << 30,
                ecc_uncorrected=0,
                processes=1,
            )

    def _probe(self, name, device, batch, latency_ms, energy_j):
        own = {**HOST, "device": device, "probe": name}
        history = []
        for time_ns, _ in self._times(*self.detail.probe):
            hot = self._hot(time_ns, device)
            p50_ms = latency_ms * (1 + LATENCY_DRIFT * hot + self.rng.gauss(0, 0.002))
            per_s = batch / p50_ms * 1000 * 0.985
            each_j = energy_j * (1 + self.rng.gauss(0, 0.004))
            is_older = time_ns < self.now_ns - SOFTWARE_AGO_NS
            yield rows.run(
                own,
                time_ns,
                p50_ms,
                batch=batch,
                energy_j=each_j,
                throughput_per_s=per_s,
                throttled_pct=11.2 * hot,
                sm_clock_mhz=1980.0 - 161 * hot,
                temp_max_c=65 + 22 * hot,
                fingerprint="9f31" if is_older else "c07a",
            )
            hardware, electricity = self._per_hour(time_ns) / 3600 / per_s, each_j * MONEY_PER_J
            history.append((time_ns, hardware + electricity))
            # Only the newest longer ones are displayed.
            windows = ("1h", "24h", "7d") if time_ns >= self.now_ns - HOUR_NS else ("1h",)
            known = {
                "cost_reference": BEFORE / 3600 / per_s + electricity,
                **dict(_rolled(history, time_ns, windows)),
            }
            yield rows.run_cost(own, time_ns, hardware, electricity, **known)

    def _unserved(self, device):
        for time_ns, length_s in self._times(*self.detail.service):
            cost = (self._per_hour(time_ns) + 0.07) * length_s / 3600
            for part, share in (("probing", 0.008), ("unallocated", 0.992)):
                yield rows.allocation({**HOST, "device": device}, time_ns, part, cost * share)

    def _service(self, name, devices, models, per_s, tokens_in, tokens_out):
        tags = {**HOST, "service": name}
        for time_ns, length_s in self._times(*self.detail.service):
            demand = 0.1 + 0.9 * self._demand(time_ns)
            busy_share = 0.06 + 0.8 * demand
            drawn_j = (300 + 370 * demand) * length_s
            paid = (self._per_hour(time_ns) * length_s / 3600, MONEY_PER_J * drawn_j)
            for device in devices:
                parts = {"busy": busy_share, "idle": 0.995 - busy_share, "probing": 0.005}
                for part, share in parts.items():
                    amounts = (amount * share for amount in paid)
                    yield rows.allocation({**tags, "device": device}, time_ns, part, *amounts)
            hardware, electricity = (len(devices) * amount * 0.995 for amount in paid)
            if name == "chat":
                for team, share in TEAMS.items():
                    own = {**tags, "tenant": team, "currency": "USD"}
                    cost = (hardware + electricity) * share
                    yield make_point("tenant", own, {"cost": cost}, time_ns)
            requests = max(1, round(per_s * demand * length_s))
            whole = [("", 1.0)] if len(models) > 1 else []
            for model, share in (*whole, *models):
                # A request of the larger model costs three times as much.
                weight = share if len(models) == 1 or not model else {0.7: 0.44, 0.3: 0.56}[share]
                total, count = (hardware + electricity) * weight, requests * share
                energy_j = len(devices) * drawn_j * weight
                tokens = {
                    "tokens_in": count * tokens_in,
                    "tokens_out": count * tokens_out,
                    "cost_tokens_in": total * 0.4,
                    "cost_tokens_out": total * 0.6,
                    "energy_tokens_in_j": energy_j * 0.4,
                    "energy_tokens_out_j": energy_j * 0.6,
                    "token_split": "measured",
                }
                yield rows.window_cost(
                    {**tags, "device": TOGETHER.join(devices), "served_model": model},
                    time_ns,
                    length_s,
                    total,
                    cost_idle=total * (1 - busy_share),
                    cost_total_hardware=hardware * weight,
                    cost_total_energy=electricity * weight,
                    requests=count,
                    inferences=count,
                    energy_j=energy_j,
                    device_s=len(devices) * length_s * weight,
                    device_busy_s=len(devices) * length_s * weight * busy_share,
                    energy_method="counter",
                    energy_rel_err=0.05,
                    **(tokens if tokens_out else {}),
                )

    def sweep(self):
        tags = {**HOST, "device": "gpu0", "probe": "encoder"}
        for batch in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128):
            latency_ms = 1.9 + 0.3 * batch + 0.00012 * max(0, batch - 32) ** 2.4
            energy_j = 0.2 + 0.9 / batch
            cost = BEFORE / 3600 / (batch / latency_ms * 1000) + energy_j * MONEY_PER_J
            figures = {"energy_j": energy_j, "cost": cost, "cheapest": batch == 64}
            yield rows.swept(tags, self.now_ns - 2 * DAY_NS, batch, latency_ms, **figures)

    def events(self):
        yield Event(
            kind="software",
            severity="info",
            title="driver 570.86.15 → 580.65.06",
            time_ns=self.now_ns - SOFTWARE_AGO_NS,
            device="gpu0",
            before="570.86.15",
            after="580.65.06",
        )
        yield Event(
            kind="price",
            severity="info",
            title="the price of all devices fell by 2.9 %",
            time_ns=self.cheaper_ns,
            device="gpu0",
            before="$4.1/h",
            after="$3.98/h",
            cause="a new plan on_demand",
        )
        yield Event(
            kind="drift",
            severity="warning",
            title=_DRIFT,
            time_ns=self.drift_ns + DRIFT_RAMP_NS,
            detail=_REASON,
            device="gpu0",
            subject={"probe": "encoder"},
            cause=_CAUSE,
            metric="cost",
            change_pct=8.4,
            level_pct=8.4,
            since_ns=self.drift_ns,
            cost_per_month=212.4,
            currency="USD",
        )

    def alerts(self):
        tags = {**HOST, "rule": "temperature", "device": "gpu1"}
        return rows.alert(tags, self.now_ns - 3 * DAY_NS, "gpu1 is at 84 °C", hours=1)


def _firing(now_ns):
    labels = {**HOST, "device": "gpu0", "probe": "encoder"}
    symptoms = [
        {
            "series": f"latency of {name} on gpu0",
            "text": f"latency of {name} on gpu0: +8.5 %",
            "since_ns": now_ns - DRIFT_AGO_NS,
            "labels": {**labels, "probe": name},
        }
        for name in ("encoder", "ranker")
    ]
    causes = {"cause": _CAUSE, "detail": _REASON, "symptoms": symptoms}
    drift = rows.firing("drift", _DRIFT, now_ns - DRIFT_AGO_NS, labels, **causes)
    of_budget = {**HOST, "budget": "gpus"}
    budget = rows.firing("budget-forecast", _BUDGET, now_ns - 2 * DAY_NS, of_budget)
    return {"alerts": [drift, budget], "silenced": [], "silences": []}


def _rolled(history, time_ns, names):
    """Medians and interquartile ranges of the samples of rolling windows that end at a time."""
    lengths_ns = {"1h": HOUR_NS, "24h": DAY_NS, "7d": 7 * DAY_NS}
    for name in names:
        first = bisect_right(history, time_ns - lengths_ns[name], key=itemgetter(0))
        values = [value for _, value in history[first:]]
        quarters = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
        yield f"rolling_{name}", quarters[1]
        yield f"rolling_{name}_iqr", quarters[2] - quarters[0]
        yield f"rolling_{name}_coverage", 1.0
