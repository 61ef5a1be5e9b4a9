"""`transformers serve`, which exposes no counters: only a probe measures it."""

import subprocess

from engines.engine import MODELS, Engine
from engines.load import OpenAiClient

PROMPT = "Count the tokens of this prompt."
TOKENS = 12


class TransformersServe(Engine):
    """It has no page of metrics."""

    name = "transformers"
    package = "transformers"

    def __init__(self, folder):
        super().__init__(folder)
        self._model = folder / "tiny"
        subprocess.run([self.python, MODELS / "tiny_llama.py", self._model], check=True)
        self._client = OpenAiClient(self.url, str(self._model))

    def probe(self):
        return {
            "kind": "openai",
            "model": str(self._model),
            "max_tokens": TOKENS,
            "prompt": PROMPT,
        }

    def command(self):
        program = self.venv / "bin" / "transformers"
        return [program, "serve", "--host", "127.0.0.1", "--port", self.port]

    def warm_up(self):
        return self._client.chat(PROMPT, TOKENS)

    def timed(self):
        return self._client.streamed(PROMPT, TOKENS)
