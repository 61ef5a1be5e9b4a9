"""influxdb-client is loaded by v2 sinks only, and without numpy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys
from costprobe.configuration import Config
from costprobe.delivery.kinds import build_sink
from costprobe.core.clock import SystemClock
keys = {"v1": {"database": "d"}, "v2": {"bucket": "b"}}[sys.argv[1]]
table = {"api": sys.argv[1], "url": "http://127.0.0.1:9", **keys}
config = Config.model_validate({"sink": [table]})
assert "influxdb_client" not in sys.modules
assert "urllib3" not in sys.modules
sink = build_sink(config.sink[0], SystemClock())
found = {name: name in sys.modules for name in ("numpy", "influxdb_client")}
import numpy
found["numpy_afterwards"] = numpy.IS_HERE
print(json.dumps(found))
"""


@pytest.mark.parametrize(("api", "has_client"), [("v1", False), ("v2", True)])
def test_only_a_v2_sink_loads_influxdb_client_and_none_loads_numpy(api, has_client, tmp_path):
    package = tmp_path / "numpy"
    package.mkdir()
    (package / "__init__.py").write_text("IS_HERE = True\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, api],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout) == {
        "numpy": False,
        "influxdb_client": has_client,
        "numpy_afterwards": True,
    }
