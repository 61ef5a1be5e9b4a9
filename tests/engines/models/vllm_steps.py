"""A plugin of vLLM that records each step of the model: when it ran, and what it computed.

Appended to the file $STEP_RECORD per step, as a JSON list: start and end in CLOCK_MONOTONIC ns, prompt
tokens, pairs of a prompt token and a token of its context, sequences that decode, tokens of their contexts, and
CPU time in ns.
"""

import json
import os
import time
from pathlib import Path


def register():
    """Wrap the two halves of a step: the forward pass and the sampling."""
    path = os.environ.get("STEP_RECORD")
    if not path:
        return
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    if getattr(GPUModelRunner.execute_model, "records", False):
        return
    execute, sample = GPUModelRunner.execute_model, GPUModelRunner.sample_tokens
    file = Path(path).open("a", buffering=1)  # noqa: SIM115 - as long as the process
    prompts = {}
    step = []

    def execute_model(self, scheduler_output, *args, **kwargs):
        step[:] = [time.monotonic_ns(), 0, *_work(scheduler_output, prompts), time.thread_time_ns()]
        return execute(self, scheduler_output, *args, **kwargs)

    def sample_tokens(self, *args, **kwargs):
        found = sample(self, *args, **kwargs)
        step[1], step[-1] = time.monotonic_ns(), time.thread_time_ns() - step[-1]
        if any(step[2:-1]):
            file.write(json.dumps(step) + "\n")
        return found

    execute_model.records = True
    GPUModelRunner.execute_model, GPUModelRunner.sample_tokens = execute_model, sample_tokens


def _work(scheduled, prompts):
    """Return prompt tokens, their pairs, decoding sequences, and the tokens of their contexts."""
    computed = {}
    for request in scheduled.scheduled_new_reqs:
        prompts[request.req_id] = len(request.prompt_token_ids)
        computed[request.req_id] = request.num_computed_tokens
    cached = scheduled.scheduled_cached_reqs
    computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    prefilled, pairs, decoding, context = 0, 0.0, 0, 0
    for request, count in scheduled.num_scheduled_tokens.items():
        before = computed[request]
        if before < prompts[request]:
            prefilled += count
            pairs += count * (before + count / 2)
        else:
            decoding += 1
            context += before + count
    for request in scheduled.finished_req_ids:
        prompts.pop(request, None)
    return prefilled, pairs, decoding, context
