"""Triton with its python backend, from the package of PyTriton."""

import shutil

from engines.engine import MODELS
from engines.load import Tally, total
from engines.tensor_engine import TensorEngine

FAILED = [-9.0] * 4
FAILURES = 3
CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
dynamic_batching { max_queue_delay_microseconds: 2000 }
"""
CACHED = "response_cache { enable: true }"


class Triton(TensorEngine):
    """It counts answers of each model, batches of items, and failed executions."""

    name = "triton"
    package = "nvidia-pytriton"
    preset = "triton"
    shows_start = False
    ready_path = "/v2/health/ready"
    more_config = ""

    def __init__(self, folder):
        super().__init__(folder)
        (self._package,) = self.venv.glob("lib/python3*/site-packages/pytriton")
        self._server = self._package / "tritonserver"
        model = folder / "models" / "tiny"
        (model / "1").mkdir(parents=True)
        shutil.copy(MODELS / "triton_model.py", model / "1" / "model.py")
        (model / "config.pbtxt").write_text(CONFIG + self.more_config)
        self.metrics_url = f"http://127.0.0.1:{self.metrics_port}/metrics"

    def command(self):
        ports = [f"--http-port={self.port}", f"--metrics-port={self.metrics_port}"]
        hosts = ["--http-address=127.0.0.1", "--metrics-address=127.0.0.1", "--allow-grpc=false"]
        folders = [
            f"--model-repository={self.folder / 'models'}",
            f"--backend-directory={self._server / 'backends'}",
            f"--cache-directory={self._server / 'caches'}",
        ]
        more = ["--cache-config=local,size=1048576", "--allow-gpu-metrics=false"]
        return [self._server / "bin" / "tritonserver", *ports, *hosts, *folders, *more]

    def env(self):
        libraries = [self._server / "lib", self._package.parent / "nvidia_pytriton.libs"]
        return {
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
            "PATH": f"{self.venv}/bin:/usr/bin:/bin",
        }

    def load(self):
        # Alone, because all requests of such a batch fail.
        failed = total(self._client.refused(FAILED) for _ in range(FAILURES))
        return super().load() + failed + Tally(failed=FAILURES)

    def expected(self, tally):
        # Its python backend reports errors of single requests as answers.
        answered = tally.requests + tally.refused - tally.failed
        return {
            "requests": (answered, answered),
            "inferences": (answered, answered),
            "errors": (tally.failed, tally.failed),
        }
