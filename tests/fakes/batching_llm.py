"""A server with the OpenAI API whose one device has known times: serial prefill, batched decode.

The beginning that a prompt has in common with the one before is cached.
"""

import threading
import time
from itertools import takewhile
from operator import eq

from fakes.inference_server import InferenceServer, piece

PROMPT_S = 0.004
TOKEN_IN_S = 4e-5
CACHED_TOKEN_S = 1.5e-5
STEP_S = 0.006
TOKEN_OUT_S = 2e-4
CONTEXT_TOKEN_S = 1e-7
# Tokens of a chat template around the words of a prompt.
TEMPLATE_TOKENS = 8


def prefill_share(tokens_in, tokens_out, in_flight):
    """The part of prefill in the device time of requests without a cached prompt, in steady batches."""
    tokens_in += TEMPLATE_TOKENS
    prefill_s = PROMPT_S + TOKEN_IN_S * tokens_in
    step_s = STEP_S / in_flight + TOKEN_OUT_S + CONTEXT_TOKEN_S * (tokens_in + tokens_out / 2)
    return prefill_s / (prefill_s + tokens_out * step_s)


class _Request:
    def __init__(self, words, before, tokens_out):
        self.tokens_in, self.tokens_out = len(words) + TEMPLATE_TOKENS, tokens_out
        self.cached = sum(takewhile(bool, map(eq, words, before)))
        self.written = self.sent = 0


class BatchingLlm(InferenceServer):
    """The server."""

    def __init__(self):
        super().__init__(self._generate)
        self._waiting, self._running = [], []
        self._changed = threading.Condition()
        self._ended = False
        self._before = []

    def __enter__(self):
        threading.Thread(target=self._work, daemon=True).start()
        return super().__enter__()

    def __exit__(self, *error):
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        super().__exit__(*error)

    def _generate(self, call):
        """Stream the tokens of a request as they are generated."""
        if call.method == "GET":
            call.json({"data": [{"id": "m"}]} if call.path == "/v1/models" else {})
            return
        words = call.body["messages"][0]["content"].split()
        request = _Request(words, self._before, call.body["max_tokens"])
        self._before = words
        call.start_stream()
        with self._changed:
            self._waiting.append(request)
            self._changed.notify_all()
        while request.sent < request.tokens_out and not self._ended:
            with self._changed:
                self._changed.wait_for(lambda: request.written > request.sent or self._ended)
                fresh = request.written - request.sent
            for _ in range(fresh):
                call.event(piece("chat", "x "))
            request.sent += fresh
        usage = {"prompt_tokens": request.tokens_in, "completion_tokens": request.tokens_out}
        usage["prompt_tokens_details"] = {"cached_tokens": request.cached}
        call.event(piece("chat", "", finish_reason="length"))
        call.event({"choices": [], "usage": usage})
        call.event(b"[DONE]")
        call.chunk(b"")

    def _work(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._running or self._ended)
                if self._ended:
                    return
                new = self._waiting.pop(0) if self._waiting else None
                batch = [new] if new else list(self._running)
            if new:
                pass_s = PROMPT_S + TOKEN_IN_S * (new.tokens_in - new.cached)
                pass_s += CACHED_TOKEN_S * new.cached
            else:
                contexts = sum(one.tokens_in + one.written for one in batch)
                pass_s = STEP_S + TOKEN_OUT_S * len(batch) + CONTEXT_TOKEN_S * contexts
            time.sleep(pass_s)
            with self._changed:
                for one in batch:
                    one.written += 1
                self._running += [new] if new else []
                self._running = [one for one in self._running if one.written < one.tokens_out]
                self._changed.notify_all()
