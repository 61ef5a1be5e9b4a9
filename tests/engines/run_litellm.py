"""LiteLLM's proxy, in front of a small server with the OpenAI API."""

import json

from engines.load import at_once
from engines.openai_engine import PROMPT, TOKENS, OpenAiEngine
from fakes.inference_server import InferenceServer, piece

TOKENS_IN = 70
USAGE = {
    "prompt_tokens": TOKENS_IN,
    "completion_tokens": TOKENS,
    "total_tokens": TOKENS_IN + TOKENS,
}
ANSWER = {"id": "c", "object": "chat.completion", "created": 1, "model": "tiny"}
CHUNK = {**ANSWER, "object": "chat.completion.chunk"}
SLOW_S = 0.02


def answer(call):
    """Answer a chat as the provider behind the proxy; refuse those that ask for it."""
    if call.method == "GET":
        call.json({"object": "list", "data": [{"id": "tiny"}]})
    elif "fail" in call.body["messages"][-1]["content"]:
        call.json({"error": {"message": "made to fail", "type": "server_error"}}, 500)
    elif call.body.get("stream"):
        call.start_stream()
        for _ in range(TOKENS):
            call.pause(SLOW_S)
            call.event(CHUNK | piece("chat", "w "))
        call.event(CHUNK | piece("chat", "", finish_reason="length"))
        call.event(CHUNK | {"choices": [], "usage": USAGE})
        call.event(b"[DONE]")
        call.chunk(b"")
    else:
        message = {"role": "assistant", "content": "w " * TOKENS}
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        call.json(ANSWER | {"choices": [choice], "usage": USAGE})


class LiteLlm(OpenAiEngine):
    """It counts calls of clients, and the tokens of their answers."""

    name = "litellm"
    package = "litellm"
    preset = "litellm"
    ready_path = "/health/liveliness"

    def __init__(self, folder):
        super().__init__(folder)
        self._provider = InferenceServer(answer)
        self.metrics_url = f"{self.url}/metrics/"
        target = {
            "model": "openai/tiny",
            "api_base": f"{self._provider.url}/v1",
            "api_key": "none",
            "max_retries": 0,
        }
        config = {
            "model_list": [{"model_name": "tiny", "litellm_params": target}],
            "litellm_settings": {
                "callbacks": ["prometheus"],
                "num_retries": 0,
                "enable_end_user_cost_tracking_prometheus_only": True,
            },
            "router_settings": {"num_retries": 0, "disable_cooldowns": True},
        }
        # JSON is YAML.
        (folder / "config.yaml").write_text(json.dumps(config))
        self._provider.__enter__()

    def close(self):
        self._provider.__exit__()

    def command(self):
        program = self.venv / "bin" / "litellm"
        address = ["--host", "127.0.0.1", "--port", self.port, "--num_workers", 1]
        return [program, "--config", self.folder / "config.yaml", *address, "--telemetry", "False"]

    def env(self):
        return {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        }

    def load(self):
        client = self._client
        tally = at_once(
            [lambda: client.chat(PROMPT, TOKENS)] * 14
            + [lambda: client.streamed(PROMPT, TOKENS)] * 9
            + [lambda: client.refused(messages=[{"role": "user", "content": "fail"}])] * 4
        )
        return tally + client.aborted(PROMPT, TOKENS, TOKENS_IN)

    def expected(self, tally):
        found = super().expected(tally)
        # A call whose client went away is one with an answer, its tokens are LiteLLM's estimate.
        return found | {"requests": (tally.requests + tally.aborted,) * 2}
