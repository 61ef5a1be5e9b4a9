"""The latency of a service by its own metrics: time to first token, or of a whole request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from costprobe.adapters.serving.endpoint import MetricsEndpoint
from costprobe.adapters.serving.exposition import parse_exposition
from costprobe.adapters.serving.reading import aliases

# For each engine the counters of total latency, and of the requests in it.
LATENCIES: Final[Mapping[str, tuple[str, str]]] = {
    engine: (f"{histogram}_sum", f"{histogram}_count")
    for engine, histogram in {
        "vllm": "vllm:time_to_first_token_seconds",
        "ray_vllm": "ray_vllm_time_to_first_token_seconds",
        "sglang": "sglang:time_to_first_token_seconds",
        "tgi": "tgi_request_duration",
        "kserve": "request_predict_seconds",
        "mlserver": "model_infer_request_duration",
        "tensorrt_llm": "trtllm_time_to_first_token_seconds",
        "dynamo": "dynamo_frontend_time_to_first_token_seconds",
        "nim": "time_to_first_token_seconds",
    }.items()
} | {
    "triton": ("nv_inference_request_duration_us", "nv_inference_request_success"),
    "torchserve": ("ts_inference_latency_microseconds", "ts_inference_requests_total"),
}


class LatencyTotal(NamedTuple):
    """Latency summed over requests since the start of a service.

    Attributes:
        total: In the engine's unit; only ratios are compared.
        requests: Number of requests in it.
    """

    total: float
    requests: float


def read_latency(endpoint: MetricsEndpoint, fetch: Callable[[str], bytes]) -> LatencyTotal:
    """Read the latency of a service, over all its replicas and models.

    Counters that are not exposed count as 0: some engines create them with the first request.

    Args:
        endpoint: Its metrics; its engine is one of LATENCIES.
        fetch: Fetches the metrics at an address.

    Raises:
        ScrapeError: They cannot be read.
    """
    sums = [0.0, 0.0]
    for url in endpoint.url:
        body = fetch(url)
        for index, counter in enumerate(LATENCIES[endpoint.engine]):
            names = aliases(counter)
            samples = parse_exposition(body, names).samples
            found = next((samples[name] for name in names if name in samples), None)
            sums[index] += sum(sample.value for sample in found or ())
    return LatencyTotal(*sums)
