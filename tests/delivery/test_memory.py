"""A daemon imports what it needs only: other libraries would take memory."""

import subprocess
import sys

SINK = """
from costprobe.configuration import Config
from costprobe.core.clock import SystemClock
from costprobe.delivery.kinds import build_sink
table = {{"api": "{api}", "url": "http://127.0.0.1:9", "{place}": "d"}}
(section,) = Config.model_validate({{"sink": [table]}}).sink
build_sink(section, SystemClock())
"""
DAEMON = """
import costprobe.daemon.pages, costprobe.delivery.loop, costprobe.serving.service, costprobe.ui.cli.run
from costprobe.delivery.apprise import Apprise, AppriseConfig
Apprise(AppriseConfig(name="n", kind="apprise", url="file:/nowhere")).problems()
"""
# A program, and what it must not import.
PROGRAMS = (
    (SINK.format(api="v1", place="database"), {"numpy", "influxdb_client"}),
    (SINK.format(api="v2", place="bucket"), {"numpy"}),
    (DAEMON, {"apprise", "requests", "yaml", "urllib3", "http.client", "prometheus_client"}),
)


def test_programs_import_only_what_they_need():
    found = [
        subprocess.run(
            [sys.executable, "-c", f"{program}\nimport sys\nprint({large} & set(sys.modules))"],
            check=True, capture_output=True, text=True,
        ).stdout
        for program, large in PROGRAMS
    ]  # fmt: skip
    assert found == ["set()\n"] * len(PROGRAMS)
