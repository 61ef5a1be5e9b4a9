"""A store of a simulated host with eight GPUs, twelve probe series and a service with two models.

Its rows are as the retention leaves them: as measured for the last days, then one an hour. They are drawn from pools of a few, so that writing a year takes a minute.
"""

import json
import random
import sqlite3
from dataclasses import dataclass
from itertools import pairwise

from costprobe.adapters.store.hours import Part, aggregate
from costprobe.adapters.store.write import Store
from costprobe.core.line_protocol import field_set, series_key, written_tags
from costprobe.core.records import Event
from costprobe.core.schema import event_point, make_point
from fakes import rows
from fakes.clock import FakeClock

S = 10**9
MINUTE_NS, HOUR_NS, DAY_NS = 60 * S, 3600 * S, 86_400 * S
HOST = {"host": "gpu-node-17"}
GPUS = tuple(f"gpu{index}" for index in range(8))
# Probe, devices, latency in ms of a pass of 32, joules an inference.
PROBES = (
    ("encoder", GPUS[:4], 11.6, 0.23),
    ("ranker", GPUS[:4], 18.4, 0.08),
    ("vision", GPUS[4:], 31.0, 0.64),
)
SERVED = GPUS[6:]
BATCH = 32
# Money an hour of a device until and from the change of price; the drift of encoder on gpu0.
BEFORE, AFTER = 4.50, 4.14
CHEAPER_DAYS = 8
DRIFT, DRIFT_HOURS = 0.084, 5
POOL = 61  # a prime, so that no daily pattern repeats the pool
CONFIG = """
[host]
name = "gpu-node-17"
[[price]]
plan = "on_demand"
per = "device"
per_hour = 4.14
[[price]]
plan = "reserved"
name = "committed"
per = "device"
per_hour = 4.14
discount = 0.4
term = "1y"
valid_from = 2099-01-01
[[probe]]
name = "encoder"
kind = "transformer"
[[service]]
name = "chat"
url = "http://127.0.0.1:8000"
engine = "vllm"
devices = ["gpu6", "gpu7"]
[[budget]]
name = "gpus"
amount = 24000
period = "month"
[[budget]]
name = "chat"
amount = 7000
period = "month"
service = "chat"
"""


@dataclass(frozen=True)
class Detail:
    """How dense the rows are; seconds between rows, and days that are kept.

    Attributes:
        device_s: Between rows of a device.
        probe_s: Between runs of a probe, and the length of a service's window.
        raw_days: Days of device rows as measured.
        sampled_days: Days of the other rows as measured.
    """

    device_s: int = 10
    probe_s: int = 300
    raw_days: int = 7
    sampled_days: int = 90


# As the daemon keeps them, and few enough rows for a test.
FULL, COARSE = Detail(), Detail(device_s=900, probe_s=3600, raw_days=2, sampled_days=30)


def made(folder, now_ns, days=120, detail=FULL):
    """Write a configuration and its store, whose rows end at a time; return the file's path.

    Full hours have no rows beside those as measured: see `settled`.
    """
    file = folder / "costprobe.toml"
    file.write_text(f'[store]\npath = "{folder}/costprobe.db"\n{CONFIG}')
    store = Store.open(folder / "costprobe.db", FakeClock(now_ns))
    store.append([event_point(event, HOST) for event in _events(now_ns)])
    store.close()
    connection = sqlite3.connect(folder / "costprobe.db", isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    _Filling(connection, now_ns, days, detail).fill()
    connection.execute("COMMIT")
    connection.close()
    return file


def settled(file, now_ns):
    """Write the rows of full hours, as the daemon does while it runs; return the file's path."""
    store = Store.open(file.parent / "costprobe.db", FakeClock(now_ns))
    store.settle(now_ns, limit=10**9)
    store.close()
    return file


class _Filling:
    def __init__(self, connection, now_ns, days, detail):
        self._connection = connection
        self._rng = random.Random(17)
        self._now_ns = now_ns // HOUR_NS * HOUR_NS
        self._begin_ns = self._now_ns - days * DAY_NS
        self._detail = detail
        self._cheaper_ns = self._now_ns - CHEAPER_DAYS * DAY_NS

    def fill(self):
        detail = self._detail
        for name in GPUS:
            self._series("device", self._device(name), detail.device_s, detail.raw_days)
        for probe, devices, latency_ms, energy_j in PROBES:
            for name in devices:
                rows = self._probe(probe, name, latency_ms, energy_j)
                for kind, make in rows.items():
                    self._series(kind, make, detail.probe_s, detail.sampled_days)
        for kind, make in self._service():
            self._series(kind, make, detail.probe_s, detail.sampled_days)

    def _series(self, kind, make, every_s, raw_days):
        """Write the rows of a series in each state of the host, in both tables."""
        states = (
            (self._begin_ns, self._cheaper_ns, BEFORE, 0.0),
            (self._cheaper_ns, self._now_ns - DRIFT_HOURS * HOUR_NS, AFTER, 0.0),
            (self._now_ns - DRIFT_HOURS * HOUR_NS, self._now_ns, AFTER, DRIFT),
        )
        raw_ns = self._now_ns - raw_days * DAY_NS
        series_id = None
        for since_ns, until_ns, per_hour, drift in states:
            pool = [make(per_hour, drift, every_s) for _ in range(POOL)]
            series_id = series_id or self._series_id(pool[0])
            # The pool begins again a month ago.
            cuts_ns = sorted((self._now_ns - 30 * DAY_NS, raw_ns))
            edges_ns = (since_ns, *(cut for cut in cuts_ns if since_ns < cut < until_ns), until_ns)
            for start_ns, end_ns in pairwise(edges_ns):
                if start_ns >= raw_ns:
                    self._raw(series_id, pool, start_ns, end_ns, every_s)
                else:
                    self._reduced(series_id, kind, pool, (start_ns, end_ns), every_s)

    def _series_id(self, point):
        key, tags = series_key(point.measurement, point.tags), json.dumps(written_tags(point.tags))
        sql = "INSERT INTO series (measurement, key, tags) VALUES (?, ?, ?)"
        return self._connection.execute(sql, (point.measurement, key, tags)).lastrowid

    def _raw(self, series_id, pool, since_ns, until_ns, every_s):
        texts = [field_set(point.fields) for point in pool]
        times = range(since_ns + every_s * S, until_ns + 1, every_s * S)
        self._connection.executemany(
            "INSERT INTO points (series_id, time_ns, fields) VALUES (?, ?, ?)",
            ((series_id, time_ns, texts[i % POOL]) for i, time_ns in enumerate(times)),
        )

    def _reduced(self, series_id, kind, pool, span, every_s):
        count = 3600 // every_s
        texts = [
            field_set(
                aggregate(kind, [Part(i, 1, pool[(first + i) % POOL].fields) for i in range(count)])
            )
            for first in range(POOL)
        ]
        newest_ns = (3600 - every_s) * S
        self._connection.executemany(
            "INSERT INTO hours (series_id, time_ns, newest_ns, rows, step_ns, is_reduced, fields)"
            " VALUES (?, ?, ?, ?, ?, 1, ?)",
            (
                (series_id, time_ns, time_ns + newest_ns, count, every_s * S, texts[i % POOL])
                for i, time_ns in enumerate(range(*span, HOUR_NS))
            ),
        )

    def _device(self, name):
        rng, number = self._rng, GPUS.index(name)

        def row(per_hour, drift, every_s):
            power_w = rng.gauss(320 + 20 * number, 25)
            hot = drift if number == 0 else 0.0
            return rows.device(
                {**HOST, "device": name},
                0,
                every_s,
                per_hour,
                power_w,
                power_max_w=power_w * 1.1,
                energy_suspect=False,
                util_pct=min(100.0, max(0.0, rng.gauss(45 + 6 * number, 8))),
                mem_util_pct=rng.uniform(20, 60),
                mem_used_bytes=(40 + number) << 30,
                temp_c=62.0 + 250 * hot + rng.gauss(0, 0.4),
                sm_clock_mhz=1980.0 * (1 - hot),
                throttle_power_s=0.0,
                throttle_thermal_s=1.3 * hot * every_s,
                ecc_uncorrected=0,
                processes=2,
                carbon_g=power_w * every_s / 3.6e6 * 420,
            )

        return row

    def _probe(self, probe, device, latency_ms, energy_j):
        """Return the makers of a probe's rows; both are of the same runs."""
        rng = self._rng
        own = {**HOST, "device": device, "probe": probe}
        spread = 1 + 0.004 * GPUS.index(device)

        def run(drift):
            hot = drift if (probe, device) == ("encoder", "gpu0") else 0.0
            return latency_ms * spread * (1 + hot) * rng.gauss(1, 0.002), hot

        def measured(_, drift, __):
            p50_ms, hot = run(drift)
            return rows.run(
                own,
                0,
                p50_ms,
                batch=BATCH,
                energy_j=energy_j,
                latency_cv=0.01,
                latency_rel_err=0.004,
                h2d_ms=0.4,
                outliers=3,
                energy_above_idle_j=energy_j * 0.7,
                energy_scope="device",
                energy_suspect=False,
                throttled_pct=0.0,
                throttled_thermal_pct=130 * hot,
                sm_clock_mhz=1980.0 * (1 - hot),
                temp_max_c=66.0 + 250 * hot,
                stop_reason="precise",
                fingerprint="3f9ad07c51be2284",
            )

        def paid(per_hour, drift, _):
            amount = per_hour / 3600 * run(drift)[0] / 1000 / BATCH
            return rows.run_cost(
                own,
                0,
                amount,
                cost_reference=BEFORE / per_hour * amount,
                carbon_per_inference_g=energy_j / 3.6e6 * 420,
                **rows.rolling(amount, amount / 400),
            )

        return {"probe": measured, "cost": paid}

    def _service(self):
        rng, chat = self._rng, {**HOST, "service": "chat"}

        def cost(model, share):
            def row(per_hour, _, every_s):
                demand = rng.uniform(0.5, 1.0)
                total = len(SERVED) * per_hour / 3600 * every_s * share
                requests = 4.0 * every_s * share * demand
                named = {"served_model": model} if model else {}
                return rows.window_cost(
                    {**chat, "device": "+".join(SERVED), **named},
                    0,
                    every_s,
                    total,
                    ratios=("cost_per_inference", "cost_per_request", "energy_per_inference_j"),
                    cost_idle=total * (1 - demand),
                    cost_tokens_in=total * 0.4,
                    cost_tokens_out=total * 0.6,
                    energy_j=700.0 * every_s * share,
                    requests=requests,
                    inferences=requests,
                    tokens_in=requests * 900,
                    tokens_out=requests * 260,
                    idle_share=1 - demand,
                    cost_per_million_tokens_in=total * 0.4 / (requests * 900) * 1e6,
                    cost_per_million_tokens_out=total * 0.6 / (requests * 260) * 1e6,
                )

            return row

        def counted(_, __, every_s):
            requests = rng.uniform(2.0, 4.0) * every_s
            fields = {
                "requests": requests,
                "inferences": requests,
                "tokens_in": requests * 900,
                "tokens_out": requests * 260,
                "window_s": float(every_s),
                "complete": True,
            }
            return make_point("serving", {**chat, "engine": "vllm"}, fields, 0)

        def allocated(device, part, share):
            def row(per_hour, _, every_s):
                amount = per_hour / 3600 * every_s * share
                return rows.allocation({**chat, "device": device}, 0, part, amount)

            return row

        yield "serving", counted
        for model, share in (("", 1.0), ("base", 0.7), ("tuned", 0.3)):
            yield "cost", cost(model, share)
        for device in SERVED:
            for part, share in (("busy", 0.74), ("idle", 0.255), ("probing", 0.005)):
                yield "allocation", allocated(device, part, share)


def _events(now_ns):
    cheaper_ns = now_ns // HOUR_NS * HOUR_NS - CHEAPER_DAYS * DAY_NS
    for name in GPUS:
        yield Event(
            kind="price",
            severity="info",
            title=f"{name} now costs $4.14 per hour",
            time_ns=cheaper_ns + 7 * S,
            detail="plan on_demand from 2026-11-15 replaced plan on_demand",
            device=name,
            before="$4.5/h",
            after="$4.14/h",
            cause="price plan",
        )
    drift_ns = now_ns // HOUR_NS * HOUR_NS - DRIFT_HOURS * HOUR_NS
    yield Event(
        kind="drift",
        severity="warning",
        title="cost per inference of encoder on gpu0 is +8.4 % at constant price",
        time_ns=drift_ns + HOUR_NS,
        detail="cause: cooling 94 % (80 to 100 %): thermal throttling 11 % of the time,"
        " temperature 62 → 83 °C. To do: check fan and airflow",
        device="gpu0",
        subject={"probe": "encoder"},
        before="$0.453 per million",
        after="$0.491 per million",
        cause="cooling",
        metric="cost",
        change_pct=8.4,
        since_ns=drift_ns,
    )
    for index, name in enumerate(GPUS[:4]):
        yield Event(
            kind="software",
            severity="info",
            title=f"encoder on {name} runs on other software: driver",
            time_ns=now_ns - 12 * DAY_NS + index * 90 * S,
            detail="latency, energy and cost before and after are not comparable",
            device=name,
            subject={"probe": "encoder"},
            before="driver 570.86.15",
            after="driver 580.65.06",
            cause="driver",
        )
