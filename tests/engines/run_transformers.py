"""`transformers serve`, which exposes no counters: only a probe measures it."""

import subprocess

from engines.engine import MODELS
from engines.openai_engine import OpenAiEngine


class TransformersServe(OpenAiEngine):
    """It has no page of metrics."""

    name = "transformers"
    package = "transformers"

    def __init__(self, folder):
        super().__init__(folder)
        subprocess.run([self.python, MODELS / "tiny_llama.py", self.model()], check=True)

    def model(self):
        return str(self.folder / "tiny")

    def command(self):
        program = self.venv / "bin" / "transformers"
        return [program, "serve", "--host", "127.0.0.1", "--port", self.port]
