"""An engine with the Open Inference Protocol."""

from engines.engine import Engine
from engines.load import TensorClient, at_once, tensor

GOOD, REFUSED = [0.5] * 4, [-1.0] * 4


class TensorEngine(Engine):
    """Its model takes one tensor and refuses negative ones."""

    def __init__(self, folder):
        super().__init__(folder)
        self._client = TensorClient(self.url, "tiny")

    def probe(self):
        return {"kind": "kserve", "model": "tiny", "inputs": [tensor(GOOD)]}

    def warm_up(self):
        return self._client.infer(GOOD)

    def load(self):
        client = self._client
        return at_once([lambda: client.infer(GOOD)] * 60 + [lambda: client.refused(REFUSED)] * 7)

    def timed(self):
        return self._client.infer(GOOD)
