"""An engine with the OpenAI API."""

from engines.engine import Engine
from engines.load import OpenAiClient

PROMPT = "Count the tokens of this prompt."
TOKENS = 12


class OpenAiEngine(Engine):
    """It is probed by chats with the prompt of the client's own.

    Attributes:
        ignores_eos: Whether the client asks for all tokens, also behind an end of the text.
    """

    ignores_eos = False

    def __init__(self, folder):
        super().__init__(folder)
        options = {"ignore_eos": True, "seed": 1} if self.ignores_eos else {}
        self._client = OpenAiClient(self.url, self.model(), **options)

    def model(self):
        """Return the name of its model."""
        return "tiny"

    def probe(self):
        return {"kind": "openai", "model": self.model(), "max_tokens": TOKENS, "prompt": PROMPT}

    def warm_up(self):
        return self._client.chat(PROMPT, TOKENS)

    def timed(self):
        return self._client.streamed(PROMPT, TOKENS)
