"""Descriptions of every measurement, tag and field of the series; units are in the names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# Tags with the same meaning in all measurements.
TAGS: Mapping[str, str] = {
    "device": "Device id: `gpu0`, `gpu0.mig1`, `cpu`; several that work together: `gpu0+gpu1`.",
    "kind": "Kind of the object.",
    "uuid": "The vendor's permanent identifier of the device.",
    "model": "The vendor's product name.",
    "currency": "ISO 4217 code; two currencies are never added.",
    "probe": "Name of the `[[probe]]`.",
    "service": "Name of the `[[service]]`.",
    "batch": "Items per forward pass.",
    "threads": "Threads of a CPU.",
    "served_model": "Model name reported by the server, if it serves several. Rows without it are the"
    " whole service's; the rows of its models add up to them.",
    "service_group": "The `group` of the `[[service]]`; absent without one.",
    "service_role": "What it is of its group: `all`, `prefill`, `decode` or `worker`. Rows of a role other than"
    " `all` have no counts beside the cost, and no cost per request or token.",
    "basis": "`probe`: an inference on an otherwise idle device. `serving`: the whole cost of the devices, idle time included.",
    "plan": "Kind of the price plan in force; if none is configured, `list` on a detected cloud instance, else `assumed`.",
    "budget": "Name of the `[[budget]]`.",
}
# Fields with the same meaning in all measurements.
FIELDS: Mapping[str, str] = {
    "energy_method": "Source of the energy: `counter`, `samples`, `poll`, `rapl`, `modelled`,"
    " `last_known`.",
    "energy_rel_err": "Relative uncertainty of the energy (about 95 %).",
    "contended": "Whether others used the device during the run: see"
    " [beside other work](../measurement.md#beside-other-work).",
    "energy_suspect": "Whether the device's energy sensors disagree, or an impossible reading of power or energy was"
    " discarded.",
    "energy_scope": "What the energy covers if not only the device: `module` for a GPU with the CPU"
    " and the memory on its module, `parent` for the whole board of a MIG device.",
    "price_stale": "True if a stale spot price was used.",
    "price_assumed": "True if no price is configured and one was assumed.",
    "carbon_method": "Source of the carbon intensity.",
    "fingerprint": "Hash of the measured software and model.",
    "ecc_uncorrected": "Uncorrected memory errors since the driver was loaded.",
    "latency_p50_ms": "Median duration of a forward pass; for a server, of a request.",
    "latency_p90_ms": "90th percentile; requires 64 samples.",
    "throughput_per_s": "Inferences per second, back to back; for a server, requests per second in the window.",
    "energy_per_inference_j": "Energy of the whole device per inference, idle power included.",
    "window_s": "Length of the window.",
    "severity": "`info`, `warning` or `critical`.",
    "cause": "Named cause; absent if unknown.",
}


class Words(NamedTuple):
    """Descriptions of a measurement.

    Attributes:
        about: Contents of a row, and when one is written.
        fields: Fields that are not in FIELDS, or have another meaning here.
        tags: Tags that are not in TAGS, or have another meaning here.
    """

    about: str
    fields: Mapping[str, str]
    tags: Mapping[str, str] = {}


def _rolling(span: str, words: str) -> dict[str, str]:
    name = f"rolling_{span}"
    return {
        name: f"Cost per inference over {words}: median of the samples on the probe basis,"
        " ratio of sums on the serving basis.",
        f"{name}_iqr": "Interquartile range of those samples; only on the probe basis.",
        f"{name}_coverage": "Coverage of that time; values below one half are unreliable.",
    }


def _percentiles(name: str, words: str) -> dict[str, str]:
    return {
        f"{name}_p50_ms": f"Median {words}.",
        f"{name}_p90_ms": "90th percentile of it; requires 64 samples.",
        f"{name}_p99_ms": "99th percentile of it; requires 662 samples.",
        f"{name}_mean_ms": "Mean of it.",
    }


MEASUREMENTS: Mapping[str, Words] = {
    "device": Words(
        "A device over an interval (ten times `[telemetry] every`, 10 s) that ends at multiples of its length, at"
        " the same time on every host. Metrics that the device does not support are absent.",
        {
            "power_w": "Mean power; absent for a MIG device, because it is in its board's row.",
            "power_max_w": "Highest sampled power.",
            "energy_j": "Energy in the interval.",
            "util_pct": "Utilization: share of time with a running kernel, in percent.",
            "mem_util_pct": "Share of time in which memory was read or written, in percent.",
            "mem_used_bytes": "Used memory at the end of the interval.",
            "mem_total_bytes": "Total memory.",
            "temp_c": "Highest temperature; for a GPU read at the end, and at every sample during a probe.",
            "sm_clock_mhz": "Mean SM clock.",
            "mem_clock_mhz": "Mean memory clock; read like `temp_c`.",
            "power_limit_w": "Power limit in force, the lowest of all (`nvidia-smi -q -d POWER`), at the end of the"
            " interval.",
            "throttle_power_s": "Time throttled by a power limit.",
            "throttle_thermal_s": "Time throttled by temperature.",
            "processes": "Number of processes on the device at the end of the interval.",
            "price_rate_per_h": "Price of a device-hour under the plan in force, without electricity.",
            "cost": "Cost of the interval, including electricity if the plan does not include it.",
            "dram_energy_j": "Energy of the host's memory by RAPL, if available; not part of `energy_j`.",
            "carbon_g": "Grams of CO2-equivalent of its electricity.",
            "carbon_energy_j": "Energy of the interval, if its emissions are known: divide `carbon_g` by it.",
        },
        {"kind": "`gpu`, `mig` (a MIG device, or a partition of an AMD board) or `cpu`."},
    ),
    "probe": Words(
        "A run of a probe; see [measurement](../measurement.md).",
        {
            "latency_p99_ms": "99th percentile; requires 662 samples.",
            "latency_mean_ms": "Mean.",
            "latency_cv": "Coefficient of variation (standard deviation / mean).",
            "latency_rel_err": "Half-width of the 95 % interval of median or mean within the run, relative, whichever"
            " is larger.",
            "latency_spread": "Half of the range that contains 90 % of the medians of the last 50 runs with the same"
            " software, board and batch, relative to their median; requires 10 runs. Contended runs are left out.",
            "device_ms": "Median time of a pass whose kernels all wait in the GPU's queue when it begins. The latency"
            " minus this is the overhead of launching. Not on a CPU, which has no queue.",
            "unsteady": "Whether the first and the last third of the run differ by more than 3 %, or latencies are"
            " around two values.",
            "samples": "Timed passes, or requests, that the latencies are from.",
            "samples_delayed": "Further timed passes of a contended run that are in no figure, because others delayed"
            " them; absent if there are none.",
            "pass_low_ms": "Of a contended run: mean time of a pass in the fastest of ten to nineteen parts of the"
            " passes that count; where none is left out, the fastest pass.",
            "pass_high_ms": "Mean time of a pass in the slowest part.",
            "outliers": "Number of outliers; they are included in every statistic.",
            "stop_reason": "Why sampling stopped: `runs`, `settled` or `time_cap`.",
            "h2d_ms": "Time to copy a batch from host to device.",
            "flop_per_pass": "Floating-point operations of a pass; absent where they cannot be counted.",
            "bytes_per_pass": "Bytes of weights and state (KV cache) that a pass moves; absent as above.",
            "mfu_pct": "Model FLOP utilization: share of the board's peak FLOP rate, in percent.",
            "mbu_pct": "Model bandwidth utilization: `bytes_per_pass` over the time of a pass, as a share"
            " of the memory's peak bandwidth, in percent.",
            "roofline_ms": "Shortest time of a pass on the board, by both peaks: see"
            " [the physical limit](../measurement.md#the-physical-limit).",
            "energy_above_idle_j": "Energy per inference minus idle energy.",
            "cpu_others_pct": "Share of the processors' time that other processes ran, on a CPU, in percent.",
            "cpu_steal_pct": "Share that the hypervisor gave to other virtual machines, in percent.",
            "cpu_wait_pct": "Share of the probe's own time that its threads waited for a processor, in percent; on a GPU"
            " the thread that launches its kernels.",
            "throttled_pct": "Share of the window in which the device was throttled, in percent.",
            "throttled_power_pct": "Part of it caused by a power limit.",
            "throttled_thermal_pct": "Part of it caused by temperature.",
            "sm_clock_mhz": "Mean SM clock in the window.",
            "mem_clock_mhz": "Mean memory clock in the window.",
            "power_limit_w": "Power limit in force in the window, the lowest of all.",
            "temp_max_c": "Highest temperature in the window.",
            "mem_used_pct": "Mean used share of the device's memory, in percent.",
            "threads": "Intra-op threads, on a CPU.",
            "requests": "Timed requests (server probes).",
            "errors": "Failed requests; excluded from latencies.",
            "tokens_in": "Mean input tokens of a request; of a decoder's prefill those of an item.",
            "tokens_out": "Mean output tokens of a request; of a decoder's decode step those of an item.",
            "tokens_in_per_s": "Input tokens per second, as `throughput_per_s`.",
            "tokens_out_per_s": "Output tokens per second, as `throughput_per_s`.",
            "energy_per_million_tokens_in_j": "Energy of the inferences per million input tokens; of a request to a"
            " server its whole energy.",
            "energy_per_million_tokens_out_j": "Energy of the inferences per million output tokens; of a request to a"
            " server its whole energy.",
            "cached_tokens": "Mean input tokens of a request that a prefix cache answered, if the server reports it.",
            "cached": "Whether a cache of the server answered most of the work (server probes).",
            "token_source": "Source of the token count; `chunks`: chunks of the stream.",
            **_percentiles("ttft", "time to the first token"),
            **_percentiles("tpot", "time between tokens"),
        },
        {
            "cold": "Set if caches were flushed before every pass.",
            "compile": "Set if the model was compiled with torch.compile.",
            "cuda_graph": "Set if passes were replayed as a CUDA graph.",
            "weights": "`random` for untrained weights.",
            "concurrency": "Concurrent clients (server probes).",
        },
    ),
    "cost": Words(
        "Cost per inference, for each run of a probe and each window of a service."
        " Formulas: [cost](../cost.md).",
        {
            "cost_per_inference": "Cost of one inference.",
            "cost_hardware": "Part for the hardware price.",
            "cost_energy": "Part for electricity that the plan does not include.",
            "cost_reference": "The same sample at the price in force when the series began.",
            "cost_roofline": "Cost if a pass took only `roofline_ms`, with the same electricity.",
            **_rolling("1h", "the last hour"),
            **_rolling("24h", "the last 24 hours"),
            **_rolling("7d", "the last seven days"),
            "cost_per_million_tokens_in": "Cost of a million input tokens.",
            "cost_per_million_tokens_fresh": "Cost of a million input tokens that were computed.",
            "cost_per_million_tokens_cached": "Cost of a million input tokens that a cache answered; 0 if no"
            " [weight](../serving.md#cached-tokens) of theirs was measured.",
            "cost_per_million_tokens_out": "Cost of a million output tokens.",
            "cost_roofline_per_million_tokens_in": "The same for input tokens at `cost_roofline`.",
            "cost_roofline_per_million_tokens_out": "The same for output tokens at `cost_roofline`.",
            "cost_total": "Cost of the service in the window.",
            "cost_idle": "Part that paid for idle time.",
            "cost_idle_known": "Cost of the window, if its idle part is known.",
            "idle_share": "Idle part as a share.",
            "cost_per_request": "Cost of a request.",
            "cost_per_thousand_inferences": "Cost of 1,000 inferences.",
            "cost_total_hardware": "Part of `cost_total` for the hardware price.",
            "cost_total_energy": "Part of `cost_total` for electricity.",
            "cost_tokens_in": "Part of `cost_total` for input tokens.",
            "cost_tokens_fresh": "Part of it for those that were computed.",
            "cost_tokens_cached": "Part of it for those that a cache answered.",
            "cost_tokens_out": "Part of `cost_total` for output tokens.",
            "cost_cache_saved": "What the cached tokens would have cost in addition at the price of computed ones.",
            "cached_share": "Share of the input tokens that a cache answered; absent if they are not counted.",
            "requests": "Answered requests of the window; for vLLM sequences, as in `serving`.",
            "inferences": "Inferences of the window.",
            "tokens_in": "Input tokens of the window.",
            "tokens_out": "Output tokens of the window.",
            "cached_tokens": "Input tokens of the window that were found in a cache.",
            "fresh_tokens": "Those that were computed; all of them if cached ones are not counted.",
            "device_s": "Device-seconds that the service paid for, idle time included, probing excluded.",
            "device_busy_s": "Those in which the devices were busy.",
            "decode_request_s": "Time of decode summed over requests: a batch of 32 counts 32 times.",
            "carbon_per_inference_g": "Grams of CO2-equivalent for one inference.",
            "energy_j": "Energy of the service in the window, idle time included, probing excluded.",
            "energy_tokens_in_j": "Part of it for input tokens.",
            "energy_tokens_out_j": "Part of it for output tokens.",
            "energy_per_inference_j": "Energy of one inference, idle time included.",
            "energy_per_request_j": "Energy of a request.",
            "energy_per_million_tokens_in_j": "Energy of a million input tokens.",
            "energy_per_million_tokens_out_j": "Energy of a million output tokens.",
            "energy_rel_err": "Relative uncertainty of the devices' energy (about 95 %), without that of its"
            " division among services, models and tokens.",
            "energy_scope": "`parent` if it is a MIG device's share of its board's energy by slices.",
            "token_split": "How cost and energy were divided between input and output tokens: `calibrated`"
            " (`costprobe calibrate`), `measured` (device time), `weights` (of tokens; unless configured those of an H100, whatever the device),"
            " `role` (a pool of prefill or decode has one kind of tokens).",
            "model_split": "How they were divided among the models of a server: `time`, `tokens`,"
            " `executions`, `assumed`.",
            "carbon_g": "Grams of CO2-equivalent of the service in the window.",
            "carbon_inferences": "Inferences of the window, if its emissions are known.",
            "metered_inferences": "Inferences of the window, if its energy is known.",
            "metered_requests": "Requests, likewise.",
            "metered_tokens_in": "Input tokens, likewise.",
            "metered_tokens_out": "Output tokens, likewise.",
        },
    ),
    "serving": Words(
        "Usage of a service in a window, and of each of its models if there are several:"
        " [serving](../serving.md).",
        {
            "requests": "Answered requests. vLLM counts sequences: a call with `n = 4` counts 4, one with a"
            " list of 3 prompts counts 3.",
            "errors": "Failed requests.",
            "inferences": "Inferences, if a request may contain several.",
            "tokens_in": "Input tokens.",
            "tokens_out": "Output tokens.",
            "cached_tokens": "Input tokens found in a cache.",
            "prefill_s": "Device time of prefill; a batch counts once.",
            "decode_s": "Device time of decode.",
            "compute_s": "Device time in which prefill and decode are not separated.",
            "decode_request_s": "Time of decode summed over requests: a batch of 32 counts 32 times.",
            "compute_request_s": "Time of compute summed over requests.",
            "executions": "Executed batches.",
            "estimated_flop": "Floating-point operations that vLLM estimates, of one GPU of each engine.",
            "estimated_bytes": "Bytes that it estimates to be read and written, likewise.",
            "kv_transfer_bytes": "Bytes of KV cache that a disaggregated server transferred: counted by vLLM where"
            " they are read (NIXL), by SGLang where they are sent.",
            "kv_transfer_s": "Time of these transfers, summed over transfers.",
            "kv_transfer_failures": "Transfers that failed.",
            "busy_share": "Share of the window in which its devices were busy.",
            "kv_cache_share": "Share of the KV cache in use, mean over readings and servers.",
            "requests_waiting": "Requests that wait to be scheduled, of all servers, mean over readings.",
            "restarts": "Number of counter resets.",
            "readings": "Successful readings.",
            "complete": "Whether the counts cover the whole window; if not, there is no cost.",
            "problem": "Reason why it is incomplete.",
            "missing": "Expected counters that do not exist.",
        },
        {"engine": "Engine of the `[[service]]`."},
    ),
    "software": Words(
        "The software of a run of a probe, as tags, so that a database can select and group by it:"
        " [fleet](../fleet.md). Absent for probes of servers.",
        {"probe_runs": "Number of runs of the probe."},
        {
            "driver": "Version of the driver.",
            "torch": "Version of PyTorch.",
            "cuda": "Version of CUDA that PyTorch was built with.",
            "dtype": "Configured dtype; `as made` if the model keeps its own.",
            "weights_hash": "Hash of the model's weights.",
        },
    ),
    "allocation": Words(
        "Cost allocation: a part of a device's cost in a window. The parts add up to the cost.",
        {
            "cost": "Cost of this part.",
            "cost_hardware": "Hardware part.",
            "cost_energy": "Electricity part.",
            "basis": "How the part of a container that shares the device was found: `use` (time of its processes),"
            " `replicas`, `cores` (HAMi's limit) or `even`; none otherwise.",
        },
        {"part": "`busy`, `idle`, `held` (busy time unknown), `probing` or `unallocated`."},
    ),
    "tenant": Words(
        "Cost of a service in a window by tenant: [tenants](../howto/served_models.md#tenants). The parts add up to the"
        " service's `cost_total`.",
        {
            "cost": "Cost of this part.",
            "cost_cache_saved": "Part of the service's `cost_cache_saved`, by cached tokens.",
            "tokens_in": "Input tokens that the tenant's counters count.",
            "cached_tokens": "Those of them that were found in a cache.",
            "tokens_out": "Output tokens, likewise.",
            "requests": "Requests, likewise.",
            "energy_j": "Energy, divided like the cost.",
        },
        {
            "tenant": "Value of the label of `[service.tenants]`; `other` beyond `names`,"
            " `unattributed` for what no tenant's counter explains.",
        },
    ),
    "server": Words(
        "Energy of the whole server between two reads of `[server_power]`: [the rest of the"
        " server](../cost.md#the-rest-of-the-server). In no cost of devices, services or inferences.",
        {
            "power_w": "Mean power in the interval.",
            "energy_j": "Energy of the server in the interval.",
            "energy_method": "`counter`, or `poll`: the mean of the power at both ends.",
            "window_s": "Length of the interval.",
            "devices_energy_j": "Energy of its devices in the interval; absent if a part is unknown.",
            "others_energy_j": "The difference: CPUs, memory, fans, power supplies. May be below zero in a"
            " single row of method `poll`.",
            "others_window_s": "`window_s` where `others_energy_j` is known.",
            "cost": "Electricity of the server, PUE included; absent where it is not paid separately.",
            "cost_others": "Part of it for `others_energy_j`.",
        },
    ),
    "budget": Words(
        "Status of a `[[budget]]`, every ten minutes: [budgets](../budgets.md).",
        {
            "amount": "Planned amount for the period.",
            "spent": "Amount spent so far.",
            "forecast": "Expected amount at the end of the period.",
            "forecast_low": "Lower end of the forecast's 80 % interval.",
            "forecast_high": "Upper end of it.",
            "coverage": "Coverage: share of the elapsed time that `spent` includes.",
            "elapsed_share": "Elapsed share of the period.",
            "period_start_ns": "Start of the period, UTC in ns since 1970.",
            "period_end_ns": "End of it.",
            "text": "Summary in one sentence, with gaps.",
            "exceeded": "Whether more is spent than planned.",
            "forecast_exceeded": "Whether the forecast exceeds the plan.",
        },
        {"period": "`day`, `month`, `quarter` or `year`."},
    ),
    "event": Words(
        "Something that happened: [drift, anomalies and alerts](../alerting.md).",
        {
            "change_pct": "Change of the series, in percent; of a drift all of it since `since_ns`.",
            "level_pct": "Level relative to that before the drift, in percent; near 0: it has returned.",
            "cost_per_month": "Worth of the change in a month of 730 h, in `currency`: of a service the change of what"
            " is spent; of a probe the part of its device's price that the change takes while the device is"
            " fully used. A change of price at the same time is included.",
            "currency": "ISO 4217 code of `cost_per_month`.",
            "since_ns": "Estimated start of the change, UTC in ns since 1970.",
            "title": "One line; of an annotation its text.",
            "detail": "Decomposition and correlated signals; of an annotation its author.",
            "before": "Previous state, as text.",
            "after": "New state, as text.",
        },
        {
            "kind": "`drift`, `anomaly`, `price`, `software`, `fault`, `budget` or `annotation`.",
            "metric": "Watched series: `cost`, `latency`, `energy` or `throughput`.",
        },
    ),
    "alert": Words(
        "A change of an incident's state: [incidents](../alerting.md#incidents).",
        {
            "value": "Compared value.",
            "threshold": "Threshold it was compared with.",
            "since": "When the first symptom began, UTC in seconds since 1970.",
            "symptoms": "Number of affected series.",
            "id": "Identifier of the incident, the same in all of its rows.",
            "summary": "What happened, in one line.",
            "detail": "Causes and what to do, in one line.",
            "flapping": "Whether the incident is flapping, so that its ends are not sent.",
            "silenced": "Whether a silence suppresses it.",
        },
        {
            "rule": "The rule, or the group of rules, that found it.",
            "state": "`pending`, `firing` or `resolved`.",
        },
    ),
    "agent": Words(
        "The daemon itself, once a minute.",
        {
            "cpu_s": "CPU time of the daemon since its start.",
            "outbox_lag_s": "Age of the oldest row that a sink has not acknowledged.",
            "rss_bytes": "Resident memory of the daemon.",
            "outbox_points": "Rows waiting for a sink.",
            "sent_points": "Rows acknowledged by sinks since the start.",
            "dropped_points": "Rows dropped without being sent.",
            "late_jobs": "Runs skipped because they were late or the previous one had not finished.",
            "child_restarts": "Restarts of the sensor child.",
            "instance": "Identity of the store: two values at one host are two daemons.",
        },
        {"version": "Version of costprobe."},
    ),
    "calibration": Words(
        "A calibration of a service by `costprobe calibrate`: device time and energy of its tokens at one concurrency;"
        " see [calibration](../serving.md#calibration). `_low` and `_high` are the interval of 95 %.",
        {
            "prompt_s": "Device-seconds of a prompt, whatever its length.",
            "token_in_s": "Device-seconds of each prompt token that is computed.",
            "token_out_s": "Device-seconds of each generated token but the first.",
            "context_token_s": "Device-seconds of each token of context that the step of a generated token reads.",
            "cached_token_s": "Device-seconds of each prompt token that a cache answered; absent if not measured.",
            "tokens_in": "Mean prompt tokens of a request for which the following figures hold.",
            "tokens_out": "Mean generated tokens of a request.",
            "time_per_million_tokens_in_s": "Device-seconds of a million prompt tokens.",
            "time_per_million_tokens_in_low_s": "Lower end of its interval.",
            "time_per_million_tokens_in_high_s": "Upper end of it.",
            "time_per_million_tokens_cached_s": "Device-seconds of a million cached prompt tokens; absent if not measured.",
            "time_per_million_tokens_cached_low_s": "Lower end of its interval.",
            "time_per_million_tokens_cached_high_s": "Upper end of it.",
            "time_per_million_tokens_out_s": "Device-seconds of a million generated tokens.",
            "time_per_million_tokens_out_low_s": "Lower end of its interval.",
            "time_per_million_tokens_out_high_s": "Upper end of it.",
            "energy_per_million_tokens_in_j": "Energy of a million prompt tokens; absent where it is unknown.",
            "energy_per_million_tokens_in_low_j": "Lower end of its interval.",
            "energy_per_million_tokens_in_high_j": "Upper end of it.",
            "energy_per_million_tokens_cached_j": "Energy of a million cached prompt tokens; absent where it is unknown.",
            "energy_per_million_tokens_cached_low_j": "Lower end of its interval.",
            "energy_per_million_tokens_cached_high_j": "Upper end of it.",
            "energy_per_million_tokens_out_j": "Energy of a million generated tokens; absent where it is unknown.",
            "energy_per_million_tokens_out_low_j": "Lower end of its interval.",
            "energy_per_million_tokens_out_high_j": "Upper end of it.",
            "in_flight": "Requests in flight.",
            "windows": "Measured windows.",
            "fingerprint": "Of the probe's server and model: a run of the probe with another one makes it stale.",
        },
    ),
    "cold_start": Words(
        "A start of a model by `costprobe probe --cold-start`: see"
        " [cold start](../measurement.md#cold-start).",
        {
            "process_start_s": "Start of the process until the interpreter had started.",
            "load_s": "Import of packages, opening of the device, and copying of the weights to it.",
            "first_answer_s": "First pass, with lazy initialization and compilation.",
            "total_s": "Sum of the three.",
            "read_bytes": "Bytes read from storage; absent if the kernel does not count them.",
        },
        {"cache": "State of the page cache: `warm` or `cold`."},
    ),
    "watcher": Words(
        "A heartbeat of [`costprobe fleet watch`](../fleet.md#two-watchers), which it writes to the fleet's"
        " database; the store of a host has none.",
        {"every_s": "Interval of the evaluations."},
        {"state": "`active` for the watcher that notifies, else `passive`."},
    ),
    "sweep": Words(
        "A batch size of `costprobe probe --sweep`, or a point of a [load curve](../load.md), which"
        " has the tag `loop`.",
        {
            "cost_per_inference": "Cost of one inference at this batch size, or of a request.",
            "peak_memory_bytes": "Peak device memory of a pass.",
            "latency_rel_err": "Half-width of the 95 % interval of the latency within its run, relative.",
            "contended": "Whether others used the device.",
            "cheapest": (
                "Whether it is the cheapest batch size that meets `latency_bound`, or the cheapest"
                " point that meets `slo`."
            ),
            "throughput_per_s": "Items, or answered requests, per second.",
            "offered_per_s": "Scheduled requests per second of an open loop.",
            "goodput_per_s": "Requests per second that meet each bound of `slo`.",
            "tokens_in_per_s": "Prompt tokens per second.",
            "tokens_out_per_s": "Generated tokens per second.",
            "tokens_per_s_user": "Generated tokens per second of one user: 1000 / `tpot_p50_ms`.",
            "latency_p99_ms": "99th percentile of the time of a request; absent with fewer than 662 requests.",
            "latency_mean_ms": "Mean time of a request.",
            "ttft_p50_ms": "Median time to first token.",
            "ttft_p90_ms": "90th percentile of the time to first token; absent with fewer than 64 requests.",
            "ttft_p99_ms": "99th percentile of the time to first token; absent with fewer than 662 requests.",
            "ttft_mean_ms": "Mean time to first token.",
            "tpot_p50_ms": "Median time per output token.",
            "tpot_p90_ms": "90th percentile of the time per output token; absent with fewer than 64 requests.",
            "tpot_p99_ms": "99th percentile of the time per output token; absent with fewer than 662 requests.",
            "tpot_mean_ms": "Mean time per output token.",
            "tokens_in": "Mean prompt tokens of a request.",
            "tokens_out": "Mean generated tokens of a request.",
            "cached_tokens": "Mean prompt tokens that a prefix cache answered.",
            "itl_p50_ms": "Median time between two chunks of an answer.",
            "itl_p90_ms": "90th percentile of it; absent with fewer than 64 gaps.",
            "itl_p99_ms": "99th percentile of it; absent with fewer than 662 gaps.",
            "itl_mean_ms": "Mean of it.",
            "in_flight": "Mean number of requests in flight.",
            "requests": "Requests that began in the window.",
            "errors": "Those of them without an answer.",
            "window_s": "Length of the window.",
            "late_ms": "Mean delay between the scheduled instant and the sending.",
            "client_busy_share": "Share of a processor that the client used.",
            "energy_per_million_tokens_in_j": "Energy of the window per million prompt tokens.",
            "energy_per_million_tokens_out_j": "Energy of the window per million generated tokens.",
            "cost_per_million_tokens_in": "Whole cost of the window per million prompt tokens.",
            "cost_per_million_tokens_out": "Whole cost of the window per million generated tokens.",
            "slo": "Service level of the probe.",
            "meets_slo": "Whether the point meets it; absent if too few requests tell.",
            "front": "Whether no other point beats it in both cost and speed of a user.",
            "loop_end": (
                "Why the loop ended at this point: `saturated`, `errors`, or `complete` after the"
                " last load."
            ),
        },
        {
            "loop": "Kind of load: `closed` or `open`; absent in a sweep over batch sizes.",
            "step": "Place of a point in its loop, from 1.",
            "concurrency": "Requests in flight of a closed loop.",
        },
    ),
}
