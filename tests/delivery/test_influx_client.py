"""influxdb-client over our HTTP transport: its query API, without numpy, and never for a sink."""

import json
import os
import subprocess
import sys

import pytest
from costprobe.adapters.http.errors import Misconfigured
from costprobe.core.clock import SystemClock
from costprobe.delivery.influx import InfluxClient
from fakes.sending import config_of
from fakes.servers import Scripted

CSV = (
    b"#datatype,string,long,dateTime:RFC3339,double\r\n#group,false,false,false,false\r\n"
    b"#default,_result,,,\r\n,result,table,_time,_value\r\n,,0,2026-01-01T00:00:00Z,1.5\r\n\r\n"
)
PROGRAM = """
import json, sys
from costprobe.core.clock import SystemClock
from costprobe.delivery.influx import InfluxClient, InfluxV2, InfluxV2Config
config = InfluxV2Config(api="v2", url="http://127.0.0.1:9", bucket="b")
InfluxV2(config, SystemClock())
found = ["influxdb_client" in sys.modules]
InfluxClient(config, "o", SystemClock())
found += ["influxdb_client" in sys.modules, "numpy" in sys.modules]
import numpy
print(json.dumps([*found, numpy.IS_HERE]))
"""


def queried(answer):
    with Scripted(lambda *_: answer) as server:
        client = InfluxClient(config_of("v2", server.url, timeout_s=5.0), "o", SystemClock())
        client.use_token("t0k3n")
        try:
            tables = client.library.query_api().query("buckets()")
        finally:
            client.close()
    ((_, _, headers, _),) = server.requests
    assert headers["Authorization"] == "Token t0k3n"
    assert headers["User-Agent"].startswith("costprobe/")
    return [record.get_value() for table in tables for record in table.records]


def test_query_api_reads_a_response_and_a_refusal_is_one_of_our_errors():
    assert queried((200, {"Content-Type": "text/csv"}, CSV)) == [1.5]
    with pytest.raises(Misconfigured, match="unauthorized"):
        queried((401, {}, b'{"message": "unauthorized"}'))


def test_sink_does_not_load_influxdb_client_and_the_client_loads_no_numpy(tmp_path):
    package = tmp_path / "numpy"
    package.mkdir()
    (package / "__init__.py").write_text("IS_HERE = True\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout) == [False, True, False, True]
