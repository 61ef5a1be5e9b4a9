"""A simulated inference server: it serves, restarts, and exports vLLM counters over HTTP."""

from collections import Counter

from fakes.inference_server import InferenceServer


class ServingEngine:
    """The counters of vLLM in its text format.

    Args:
        started_s: UTC in s at which its process began.
        exposes_start: False to hide the start of process and counters, as with several front ends.
        extra: Appended to the text.

    Attributes:
        served: All requests and tokens by model, across restarts, for comparison.
    """

    def __init__(self, started_s=1000.0, *, exposes_start=True, extra=""):
        self.served = {}
        self.exposes_start = exposes_start
        self.extra = extra
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
