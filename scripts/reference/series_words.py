"""What every measurement, tag and field of the series means; units stand in the names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# Tags that mean the same wherever they stand.
TAGS: Mapping[str, str] = {
    "device": "Short name on its host: `gpu0`, `gpu0.mig1`, `cpu`; several that work as one: `gpu0+gpu1`.",
    "kind": "What it is.",
    "uuid": "The vendor's lasting identity of the device.",
    "model": "The vendor's name of the product.",
    "currency": "ISO 4217 code; two currencies are never added.",
    "probe": "Name of the `[[probe]]`.",
    "service": "Name of the `[[service]]`.",
    "batch": "Items a forward pass.",
    "served_model": "Model, as the server names it; absent in the row of the whole service.",
    "basis": "`probe`: the device does nothing else. `serving`: all that the devices cost, idle time too.",
    "plan": "Kind of the price plan in force; `assumed` where none is configured.",
    "budget": "Name of the `[[budget]]`.",
}
# Fields that mean the same wherever they stand.
FIELDS: Mapping[str, str] = {
    "energy_method": "How the energy was found: `counter`, `samples`, `poll`, `rapl`, `modelled`,"
    " `last_known`.",
    "energy_rel_err": "Uncertainty of the energy, about 95 %, as a share of it.",
    "energy_suspect": "Whether the device's energy sensors contradict each other.",
    "price_stale": "True if a spot price was used that its source no longer vouches for.",
    "carbon_method": "How the intensity was known: as configured, or from a source.",
    "fingerprint": "Hash of the software and the model that were measured.",
    "ecc_uncorrected": "Uncorrected memory errors since the driver was loaded.",
    "latency_p50_ms": "Median time of a forward pass; of a server, of a request.",
    "latency_p90_ms": "90th percentile, from 64 samples on.",
    "throughput_per_s": "Inferences, or requests, a second in the steady region.",
    "energy_per_inference_j": "Joules of the whole device for an inference, idle power included.",
    "window_s": "Length of the window.",
    "severity": "`info`, `warning` or `critical`.",
    "cause": "Named cause; absent where none is known.",
}


class Words(NamedTuple):
    """What a measurement is.

    Attributes:
        about: What a row is, and when there is one.
        fields: Its fields that are not in FIELDS, or mean something else here.
        tags: Its tags that are not in TAGS, or mean something else here.
    """

    about: str
    fields: Mapping[str, str]
    tags: Mapping[str, str] = {}


def _rolling(span: str, words: str) -> dict[str, str]:
    name = f"rolling_{span}"
    return {
        name: f"Cost per inference over {words}: on the probe basis the median of the samples, on the"
        " serving basis a ratio of sums.",
        f"{name}_iqr": "Interquartile range of those samples; on the probe basis alone.",
        f"{name}_coverage": "Share of that time that is covered; below one half it says little.",
    }


def _percentiles(name: str, words: str) -> dict[str, str]:
    return {
        f"{name}_p50_ms": f"Median {words}.",
        f"{name}_p90_ms": "90th percentile of it, from 64 samples on.",
        f"{name}_p99_ms": "99th percentile of it, from 662 samples on.",
        f"{name}_mean_ms": "Mean of it.",
    }


MEASUREMENTS: Mapping[str, Words] = {
    "device": Words(
        "A device over an interval (`[telemetry] aggregate`, 10 s), which ends at whole multiples of its"
        " length, on every host of a fleet at the same instants. What it lacks is absent.",
        {
            "power_w": "Mean power; of a MIG device absent, for it stands in its board's row.",
            "power_max_w": "Highest power that a sample saw.",
            "energy_j": "Energy in the interval.",
            "util_pct": "Share of time in which it computed, in percent.",
            "mem_util_pct": "Share of time in which its memory was read or written, in percent.",
            "mem_used_bytes": "Memory in use at the end.",
            "mem_total_bytes": "Memory that it has.",
            "temp_c": "Highest that was read; of a GPU at the end, and at every sample beside a probe.",
            "sm_clock_mhz": "Mean clock of its compute units.",
            "mem_clock_mhz": "Mean of what was read of its memory's clock; read as `temp_c` is.",
            "throttle_power_s": "Time in which a power limit held it back.",
            "throttle_thermal_s": "Time in which heat held it back.",
            "processes": "Processes that hold it at the end.",
            "price_rate_per_h": "Price of a device-hour under the plan in force, electricity aside.",
            "cost": "What it cost in the interval, with electricity where the plan leaves it out.",
            "dram_energy_j": "Energy of the host's memory by RAPL, where it is told; not in `energy_j`.",
            "carbon_g": "Grams of CO2-equivalent that its electricity emitted.",
        },
        {"kind": "`gpu`, `mig` or `cpu`."},
    ),
    "probe": Words(
        "A run of a probe; how it is measured: [measurement](../measurement.md).",
        {
            "latency_p99_ms": "99th percentile, from 662 samples on.",
            "latency_mean_ms": "Mean.",
            "latency_cv": "Standard deviation over mean.",
            "latency_rel_err": "Relative standard error of median and mean, the larger one.",
            "latency_wall_ms": "Mean wall time of a pass, on a GPU beside its device time.",
            "samples": "Timed passes, or requests.",
            "outliers": "Passes far from the others; they are in every statistic.",
            "stop_reason": "What ended the sampling: `runs`, `settled` or `time_cap`.",
            "h2d_ms": "Copy of a batch from the host to the device.",
            "launch_overhead_pct": "How much the wall time is above the device time, in percent.",
            "energy_above_idle_j": "The same less what the device draws at rest.",
            "energy_scope": "`parent` where it is the whole board's, of which the device is a part.",
            "contended": "Whether another process worked on the device.",
            "throttled_pct": "Share of the region in which the device was held back, in percent.",
            "throttled_power_pct": "The part of it by a power limit.",
            "throttled_thermal_pct": "The part of it by heat.",
            "sm_clock_mhz": "Mean clock of the compute units in the region.",
            "temp_max_c": "Highest temperature in the region.",
            "mem_used_pct": "Mean share of the device's memory in use, in percent.",
            "threads": "Intra-op threads, on a CPU.",
            "requests": "Requests that were timed, of a server.",
            "errors": "Requests that failed; they are in no latency.",
            "tokens_in": "Mean input tokens of a request.",
            "tokens_out": "Mean output tokens of a request.",
            "token_source": "Who counted the tokens; `chunks`: pieces of the stream stand for them.",
            **_percentiles("ttft", "time to the first token"),
            **_percentiles("tpot", "time between tokens"),
        },
        {
            "cold": "There if caches were flushed before every pass.",
            "compile": "There if the model went through torch.compile.",
            "cuda_graph": "There if passes were replayed as a CUDA graph.",
            "weights": "`random` where nobody trained them.",
            "concurrency": "Clients at the same time, of a server.",
        },
    ),
    "cost": Words(
        "What an inference cost: with each run of a probe, and for each window of a service."
        " Every formula: [cost](../cost.md).",
        {
            "cost_per_inference": "Currency for one inference.",
            "cost_hardware": "The part of it for holding the device.",
            "cost_energy": "The part of it for electricity that the plan leaves out.",
            "cost_reference": "The same sample at the price that held when the series began.",
            **_rolling("1h", "the last hour"),
            **_rolling("24h", "the last 24 hours"),
            **_rolling("7d", "the last seven days"),
            "cost_per_million_tokens_in": "Currency for a million tokens that are read.",
            "cost_per_million_tokens_out": "Currency for a million tokens that are written.",
            "cost_total": "What the service cost in the window.",
            "cost_idle": "The part of it that paid for idleness.",
            "idle_share": "That part as a share.",
            "cost_per_request": "Currency for a request.",
            "cost_per_thousand_inferences": "Currency for a thousand inferences.",
            "carbon_per_inference_g": "Grams of CO2-equivalent for one inference.",
            "token_split": "How the cost was split between tokens in and out: `measured`, `weights`.",
            "model_split": "By what it was divided among the models of a server.",
        },
    ),
    "serving": Words(
        "What a service served in a window, a row for each model: [serving](../serving.md).",
        {
            "requests": "Requests that were answered.",
            "errors": "Requests that failed.",
            "inferences": "Inferences, where a request may hold several.",
            "tokens_in": "Tokens that were read.",
            "tokens_out": "Tokens that were written.",
            "cached_tokens": "Tokens of those read that a cache spared.",
            "prefill_s": "Time of reading.",
            "decode_s": "Time of writing.",
            "compute_s": "Time of computing.",
            "busy_share": "Share of the window in which its devices computed.",
            "restarts": "How often counters were found to have begun anew.",
            "readings": "Readings that succeeded.",
            "complete": "Whether the counts are all that was served; if not, there is no cost.",
            "problem": "Why it is not complete.",
            "missing": "Counters that the server should have and has not.",
        },
        {"engine": "Engine of the `[[service]]`."},
    ),
    "allocation": Words(
        "A part of what a device cost in a window: who bore it and what for. The parts add up.",
        {
            "cost": "Currency of this part.",
            "cost_hardware": "Of it, for holding the device.",
            "cost_energy": "Of it, for electricity.",
        },
        {"part": "`busy`, `idle`, `held` (nothing tells which), `probing` or `unallocated`."},
    ),
    "budget": Words(
        "Where a `[[budget]]` stands, every ten minutes: [budgets](../budgets.md).",
        {
            "amount": "Money planned for the period.",
            "spent": "Money spent in it so far.",
            "forecast": "Where it will be at the end.",
            "forecast_low": "Lower end of the forecast's 80 % interval.",
            "forecast_high": "Upper end of it.",
            "coverage": "Share of the time so far that `spent` covers.",
            "elapsed_share": "Share of the period that is over.",
            "period_start_ns": "Beginning of the period, UTC in ns since 1970.",
            "period_end_ns": "End of it.",
            "text": "All this in a sentence, with what is missing.",
            "exceeded": "Whether more is spent than planned.",
            "forecast_exceeded": "Whether more will be, by the forecast.",
        },
        {"period": "`day` or `month`."},
    ),
    "event": Words(
        "Something that happened: [drift, anomalies and alerts](../alerting.md).",
        {
            "change_pct": "How much the series changed, in percent.",
            "level_pct": "Where it stands against its first baseline, in percent; near 0: it is back.",
            "since_ns": "When the change began, before it was certain; UTC in ns since 1970.",
            "title": "One line.",
            "detail": "What it is made of, and what moved with it.",
            "before": "What was before, in words.",
            "after": "What is now, in words.",
        },
        {
            "kind": "`drift`, `anomaly`, `price`, `software`, `fault` or `budget`.",
            "metric": "Watched series: `cost`, `latency`, `energy` or `throughput`.",
        },
    ),
    "alert": Words(
        "A change of an incident's state: [incidents](../alerting.md#incidents).",
        {
            "value": "Value that was compared.",
            "threshold": "What it was compared with.",
            "since": "When the first symptom began, UTC in seconds since 1970.",
            "symptoms": "How many series are wrong.",
            "id": "Identity of the incident, the same in all of its rows.",
            "summary": "One sentence that a person can act on.",
            "flapping": "Whether it comes and goes so often that its ends are not told any more.",
            "silenced": "Whether a silence keeps it quiet.",
        },
        {
            "rule": "The rule, or the group of rules, that found it.",
            "state": "`pending`, `firing` or `resolved`.",
        },
    ),
    "agent": Words(
        "infercost itself.",
        {
            "cpu_s": "Processor time of the daemon since it began.",
            "outbox_lag_s": "Age of the oldest row that a sink has not taken yet.",
            "rss_bytes": "Resident memory of the daemon.",
            "outbox_points": "Rows that wait for a sink.",
            "sent_points": "Rows that sinks took since it began.",
            "dropped_points": "Rows that were given up.",
            "late_jobs": "Runs left out because they were late or the one before had not ended.",
            "child_restarts": "How often the sensor child was started again.",
        },
        {"version": "Of infercost."},
    ),
    "sweep": Words(
        "A batch of `infercost probe --sweep`.",
        {
            "cost_per_inference": "Currency for one inference at this batch.",
            "peak_memory_bytes": "Most device memory that a pass took.",
            "cheapest": "Whether it is the cheapest that meets `latency_bound`.",
        },
    ),
}
