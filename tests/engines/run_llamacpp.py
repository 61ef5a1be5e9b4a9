"""llama.cpp's server, built from the sources in llama-cpp-python."""

import subprocess

from engines.engine import MODELS
from engines.load import at_once
from engines.openai_engine import PROMPT, TOKENS, OpenAiEngine


class LlamaCpp(OpenAiEngine):
    """It counts tokens, and neither requests nor errors."""

    name = "llamacpp"
    package = "llama-cpp-python"
    preset = "llamacpp"
    shows_start = False
    ignores_eos = True

    def __init__(self, folder):
        super().__init__(folder)
        self._model = folder / "tiny.gguf"
        make = MODELS / "tiny_gguf.py"
        subprocess.run([self.python, make, self._model], check=True)

    def command(self):
        program = self.venv / "bin" / "llama-server"
        address = ["--host", "127.0.0.1", "--port", self.port]
        size = ["--threads", 1, "--ctx-size", 8192, "--parallel", 4]
        return [program, "--model", self._model, *address, *size, "--metrics", "--no-ui"]

    def load(self):
        client = self._client
        tally = at_once(
            [lambda size=size: client.chat(PROMPT + "!" * size, TOKENS) for size in range(12)]
            + [lambda size=size: client.streamed(PROMPT + "?" * size, TOKENS) for size in range(8)]
            + [lambda: client.refused(max_tokens="many")] * 3
        )
        tokens_in = client.chat(PROMPT, 2)
        return tally + tokens_in + client.aborted(PROMPT, 2000, tokens_in.tokens_in)

    def expected(self, tally):
        found = super().expected(tally)
        return {measure: found[measure] for measure in ("tokens_in", "tokens_out")}
