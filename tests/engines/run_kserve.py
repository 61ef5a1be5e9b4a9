"""KServe's Python server with a model of its own."""

from engines.engine import MODELS
from engines.tensor_engine import TensorEngine


class KServe(TensorEngine):
    """It counts answers, and no errors."""

    name = "kserve"
    package = "kserve"
    preset = "kserve"
    ready_path = "/v2/health/ready"
    workers = 1

    def command(self):
        server = MODELS / "kserve_model.py"
        ports = ["--http_port", self.port, "--grpc_port", self.grpc_port, "--enable_grpc", "false"]
        return [self.python, server, *ports, "--workers", self.workers]

    def expected(self, tally):
        return {"requests": (tally.requests, tally.requests)}
