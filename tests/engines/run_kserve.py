"""KServe's Python server with a model of its own."""

from engines.engine import MODELS, Engine
from engines.load import TensorClient, at_once, tensor

GOOD, BAD = [0.5] * 4, [-1.0] * 4


class KServe(Engine):
    """It counts answers, and no errors."""

    name = "kserve"
    package = "kserve"
    preset = "kserve"
    ready_path = "/v2/health/ready"
    workers = 1

    def __init__(self, folder):
        super().__init__(folder)
        self._client = TensorClient(self.url, "tiny")

    def probe(self):
        return {"kind": "kserve", "model": "tiny", "inputs": [tensor(GOOD)]}

    def command(self):
        server = MODELS / "kserve_model.py"
        ports = ["--http_port", self.port, "--grpc_port", self.grpc_port, "--enable_grpc", "false"]
        return [self.python, server, *ports, "--workers", self.workers]

    def warm_up(self):
        return self._client.infer(GOOD)

    def load(self):
        client = self._client
        return at_once([lambda: client.infer(GOOD)] * 60 + [lambda: client.refused(BAD)] * 7)

    def timed(self):
        return self._client.infer(GOOD)

    def expected(self, tally):
        return {"requests": (tally.requests, tally.requests)}
