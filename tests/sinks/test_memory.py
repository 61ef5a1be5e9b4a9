"""The client's library is loaded without numpy, and only by who uses it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys
from agent.sinks.registry import build_sink
from agent.sinks.settings import SinkSettings
sink = build_sink(SinkSettings(sys.argv[1], "http://127.0.0.1:9", database="d", bucket="b"))
found = {name: name in sys.modules for name in ("numpy", "influxdb_client")}
import numpy
found["numpy_afterwards"] = numpy.IS_HERE
print(json.dumps(found))
"""


@pytest.mark.parametrize(("api", "has_client"), [("v1", False), ("v2", False)])
def test_numpy_is_not_loaded_where_it_is_installed(api, has_client, tmp_path):
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
