"""A simulated inference server: it serves, restarts, and exports vLLM counters over HTTP."""

from collections import Counter

from fakes.inference_server import InferenceServer

# Histograms of requests and their edges in s, but for the highest, of vllm/v1/metrics/loggers.py.
TIMES = {
    "ttft": (
        "time_to_first_token_seconds",
        "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0",
    ),
    "tpot": (
        "request_time_per_output_token_seconds",
        "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0",
    ),
    "latency": (
        "e2e_request_latency_seconds",
        "0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0 240.0 480.0 960.0",
    ),
}


class ServingEngine:
    """The counters of vLLM in its text format.

    Args:
        started_s: UTC in s at which its process began.
        exposes_start: False to hide the start of process and counters, as with several front ends.
        extra: Appended to the text.
        times: Which of TIMES are exposed.

    Attributes:
        served: All requests and tokens by model, across restarts, for comparison.
    """

    def __init__(self, started_s=1000.0, *, exposes_start=True, extra="", times=()):
        self.served = {}
        self.exposes_start = exposes_start
        self.extra, self.times = extra, times
        self.is_away = False
        self.restart(started_s)

    def restart(self, started_s):
        """Restart the process: all counters are zero."""
        self.started_s = started_s
        self.counters = {}

    def serve(self, model="m", requests=1, *, tokens_in=100, tokens_out=50, errors=0):
        """Serve requests with the given numbers of tokens."""
        counted = Counter(
            requests=requests,
            errors=errors,
            tokens_in=requests * tokens_in,
            tokens_out=requests * tokens_out,
            decode_request_s=requests * tokens_out * 0.02,
        )
        for kept in (self.served, self.counters):
            kept.setdefault(model, Counter()).update(counted)

    def observe(self, figure, seconds, requests=1, *, model="m"):
        """Add requests that took so long to a histogram of TIMES."""
        self.counters.setdefault(model, Counter())[figure, seconds] += requests

    def text(self):
        """The metrics in the text exposition format."""
        lines = ["# TYPE vllm:num_requests_running gauge"]
        if self.exposes_start:
            lines += ["# TYPE process_start_time_seconds gauge"]
            lines += [f"process_start_time_seconds {self.started_s}"]
        for name, key, label in (
            ("vllm:request_success", "requests", ',finished_reason="stop"'),
            ("vllm:request_success", "errors", ',finished_reason="abort"'),
            ("vllm:prompt_tokens", "tokens_in", ""),
            ("vllm:generation_tokens", "tokens_out", ""),
        ):
            lines += [f"# HELP {name}_total What it counts.", f"# TYPE {name}_total counter"]
            for model, counted in self.counters.items():
                lines.append(f'{name}_total{{model_name="{model}"{label}}} {float(counted[key])}')
                if self.exposes_start:
                    lines.append(f'{name}_created{{model_name="{model}"{label}}} {self.started_s}')
        # Each request adds the whole time of its phase: a batch of 64 counts 64 times.
        for name, key, share in (
            ("prefill", "tokens_in", 0.001),
            ("decode", "decode_request_s", 1.0),
        ):
            family = f"vllm:request_{name}_time_seconds"
            lines += [f"# HELP {family} A phase.", f"# TYPE {family} histogram"]
            for model, counted in self.counters.items():
                labels = f'model_name="{model}"'
                lines.append(f'{family}_bucket{{{labels},le="+Inf"}} {counted["requests"]}')
                lines.append(f"{family}_count{{{labels}}} {counted['requests']}")
                lines.append(f"{family}_sum{{{labels}}} {counted[key] * share}")
        for figure in self.times:
            name, edges = TIMES[figure]
            lines.append(f"# TYPE vllm:{name} histogram")
            for model, counted in self.counters.items():
                labels = f'engine="0",model_name="{model}"'
                seen = {key[1]: count for key, count in counted.items() if key[0] == figure}
                for edge in (*edges.split(), "+Inf"):
                    within = sum(count for took_s, count in seen.items() if took_s <= float(edge))
                    lines.append(f'vllm:{name}_bucket{{{labels},le="{edge}"}} {float(within)}')
                lines.append(f"vllm:{name}_count{{{labels}}} {float(sum(seen.values()))}")
        return "\n".join(lines) + "\n" + self.extra

    def answer(self, call):
        """Answer a request."""
        if self.is_away:
            call.whole(b"starting", 503)
        elif call.path == "/metrics":
            call.whole(self.text().encode(), Content_Type="text/plain; version=0.0.4")
        else:
            call.whole(b"", 404)

    def over_http(self):
        """An HTTP server of its metrics, as a context manager."""
        return InferenceServer(self.answer)
