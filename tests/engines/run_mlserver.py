"""MLServer with a model of its own."""

import json
import shutil

from engines.engine import MODELS
from engines.tensor_engine import TensorEngine


class MlServer(TensorEngine):
    """It counts answers and failures of each model."""

    name = "mlserver"
    package = "mlserver"
    preset = "mlserver"
    ready_path = "/v2/models/tiny/ready"

    def __init__(self, folder):
        super().__init__(folder)
        model = folder / "tiny"
        model.mkdir()
        shutil.copy(MODELS / "mlserver_model.py", model / "tiny_model.py")
        (model / "model-settings.json").write_text(
            json.dumps({"name": "tiny", "implementation": "tiny_model.Tiny"})
        )
        settings = {
            "host": "127.0.0.1",
            "http_port": self.port,
            "grpc_port": self.grpc_port,
            "metrics_port": self.metrics_port,
            "parallel_workers": 0,
        }
        (folder / "settings.json").write_text(json.dumps(settings))
        self.metrics_url = f"http://127.0.0.1:{self.metrics_port}/metrics"

    def command(self):
        return [self.venv / "bin" / "mlserver", "start", self.folder]

    def expected(self, tally):
        found = super().expected(tally)
        return {measure: found[measure] for measure in ("requests", "errors")}
