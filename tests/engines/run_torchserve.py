"""TorchServe with a model of its own; it needs Java."""

import subprocess

from engines.engine import MODELS, Engine
from engines.load import HttpClient, Tally, at_once

PATH = "/predictions/tiny"
CONFIG = """
inference_address=http://127.0.0.1:{port}
management_address=http://127.0.0.1:{management}
metrics_address=http://127.0.0.1:{metrics}
metrics_mode=prometheus
disable_token_authorization=true
model_store={folder}
load_models=tiny.mar
default_workers_per_model=1
vmargs=-Xmx512m
"""


class TorchServe(Engine):
    """It counts requests on arrival, also those that fail, and failures of the whole server."""

    name = "torchserve"
    package = "torchserve"
    preset = "torchserve"
    shows_start = False
    ready_path = "/ping"

    def __init__(self, folder):
        super().__init__(folder)
        archiver = self.venv / "bin" / "torch-model-archiver"
        handler = MODELS / "torchserve_handler.py"
        model = ["--model-name", "tiny", "--version", "1.0", "--handler", handler]
        subprocess.run([archiver, *model, "--export-path", folder], check=True)
        text = CONFIG.format(
            port=self.port, management=self.grpc_port, metrics=self.metrics_port, folder=folder
        )
        (folder / "config.properties").write_text(text)
        self.metrics_url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        self._http = HttpClient(self.url)

    def command(self):
        config = ["--ts-config", self.folder / "config.properties", "--ncs"]
        return [self.venv / "bin" / "torchserve", "--start", "--foreground", *config]

    def env(self):
        return {
            "PATH": f"{self.venv}/bin:/usr/bin:/bin",
            "LOG_LOCATION": str(self.folder),
            "METRICS_LOCATION": str(self.folder),
        }

    def warm_up(self):
        return self._call("ok")

    def load(self):
        return at_once([lambda: self._call("ok")] * 60 + [lambda: self._call("fail")] * 7)

    def timed(self):
        return self._call("ok")

    def expected(self, tally):
        arrived = tally.requests + tally.refused
        return {"requests": (arrived, arrived), "errors": (tally.refused, tally.refused)}

    def _call(self, text):
        status, answer, took_ms = self._http.post(PATH, text)
        if text == "fail":
            assert status >= 500, (status, answer)
            return Tally(refused=1)
        assert status == 200, (status, answer)
        return Tally(calls=1, requests=1, latencies_ms=[took_ms])
