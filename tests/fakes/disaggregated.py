"""vLLM that prefills on one instance and decodes on another, as both count it.

The proxy sends each request to the prefill instance with `max_tokens = 1`, then to the decode instance with the place
of its KV cache, which the latter reads over NIXL (vllm-project/vllm, tests/v1/kv_connector/nixl_integration/
toy_proxy_server.py). So each request, each prompt and each first token is counted on both:

- `prompt_tokens` is the length of the prompt on either instance (vllm/v1/metrics/stats.py:
  `IterationStats.num_prompt_tokens` is `PromptTokenStats.total`). Only `prompt_tokens_by_source` (since 0.16, pull request
  33290) tells what was computed (`local_compute`) from what was transferred (`external_kv_transfer`).
- `prompt_tokens_cached` of the decode instance has the transferred tokens, without the last one of each prompt, which is
  computed again for the first pass.
- The decode instance generates all tokens of the answer; the one of the prefill instance is thrown away.
- Bytes and seconds of transfers are counted where they are read, KV caches that nobody fetched where they are kept
  (vllm/distributed/kv_transfer/kv_connector/v1/nixl/stats.py).
"""

from fakes.serving_engine import ServingEngine

# Of a token of Llama 3.1 70B in bf16: two for keys and values, 80 layers, 8 heads of 128, 2 bytes.
KV_BYTES = 2 * 80 * 8 * 128 * 2


class Instance(ServingEngine):
    """One instance.

    Args:
        is_decoding: Whether its prompts come as KV caches of another one.
    """

    def __init__(self, *, is_decoding):
        super().__init__()
        self._is_decoding = is_decoding

    def text(self):
        """Return its metrics in the text exposition format."""
        lines = [super().text().rstrip("\n")]
        for model, counted in self.counters.items():
            moved = counted["tokens_in"] - counted["requests"] if self._is_decoding else 0
            labels = f'engine="0",model_name="{model}"'
            for source, tokens in (
                ("local_compute", counted["tokens_in"] - moved),
                ("local_cache_hit", 0),
                ("external_kv_transfer", moved),
            ):
                series = f'{{{labels},source="{source}"}}'
                lines.append(f"vllm:prompt_tokens_by_source_total{series} {float(tokens)}")
            lines.append(f"vllm:prompt_tokens_cached_total{{{labels}}} {float(moved)}")
            lines.append(f"vllm:nixl_num_kv_expired_reqs_total{{{labels}}} 0.0")
            if self._is_decoding:
                # One transfer a request.
                for name, whole in (("bytes_transferred", KV_BYTES), ("xfer_time_seconds", 2e-6)):
                    family = f"vllm:nixl_{name}"
                    lines.append(f"{family}_count{{{labels}}} {float(counted['requests'])}")
                    lines.append(f"{family}_sum{{{labels}}} {float(moved * whole)}")
        return "\n".join([*lines, ""])
