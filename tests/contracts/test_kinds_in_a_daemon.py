"""Kinds that only their tables name work in the real daemon: the examples of contributors."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from contracts.sensor_stages import POWER_W, acme_files
from costprobe.adapters.store.read import StoreReader
from costprobe.core.records import NS_PER_S
from fakes.daemon import DaemonProcess
from fakes.servers import Scripted

TESTS = str(Path(__file__).parents[1])
# The sensor child, with the example.
CHILD = """
import sys
sys.path.insert(0, {tests!r})
from dataclasses import replace

from contracts.examples.acme import acme_sensors
from costprobe.adapters.sensors.child.kinds import SENSORS
from costprobe.adapters.sensors.child.main import main


def sensors(context):
    settings = replace(context.settings, sysfs_root={folder!r})
    return acme_sensors(replace(context, settings=settings))


main({{"acme": sensors, **SENSORS}})
"""
# Registers the examples, then becomes the command whose line follows.
LAUNCHER = """
import sys
sys.path.insert(0, {tests!r})
from costprobe.adapters.sensors import supervisor
from costprobe.alerts.rules.kinds import RULES, RuleKind
from costprobe.delivery.kinds import NOTIFIERS, SINKS, NotifierKind, SinkKind
from costprobe.pricing.plans import PLANS
from contracts.examples import file_sink, monthly, ntfy, power_limit

supervisor.CHILD_COMMAND = (sys.executable, {folder!r} + "/child.py")
PLANS["monthly"] = monthly.MonthlyPlan
RULES["power_limit"] = RuleKind(
    power_limit.PowerLimitRuleConfig, power_limit.PowerLimitRule
)
SINKS["file"] = SinkKind(file_sink.FileSinkConfig, file_sink.FileSink)
NOTIFIERS["ntfy"] = NotifierKind(ntfy.NtfyConfig, ntfy.Ntfy)
sys.argv = sys.argv[3:]  # python -m costprobe
from costprobe.ui.cli.main import main

main()
"""
HOST = Path(__file__).with_name("examples") / "host.toml"


def test_toy_kinds_run_in_the_daemon_through_their_tables_alone(tmp_path):
    series, launcher = tmp_path / "series.lp", tmp_path / "launcher.py"
    for name, text in acme_files("sys/class/acme/card0").items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "child.py").write_text(CHILD.format(tests=TESTS, folder=str(tmp_path)))
    launcher.write_text(LAUNCHER.format(tests=TESTS, folder=str(tmp_path)))
    daemon = DaemonProcess(tmp_path, {}, wrapper=(sys.executable, launcher))

    def output_of(*arguments):
        python = [sys.executable, str(launcher), sys.executable, "-m", "costprobe"]
        command = [*python, "--config", str(daemon.config), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    with Scripted(lambda *_: (200, {}, b"{}")) as server:
        text = HOST.read_text().format(series=series, url=server.url)
        try:
            daemon.start(text)
            (alert,) = daemon.wait_for(lambda: daemon.points("alert", state="firing"))
            daemon.wait_for(lambda: len(daemon.points("device", device="acme0")) > 2)
            daemon.wait_for(lambda: server.requests and series.exists())
            assert f"{series} can be written" in output_of("doctor")
        finally:
            daemon.stop()
    # An accelerator was found, so the CPU is not a device.
    assert {row.tags["device"] for row in daemon.points("device")} == {"acme0"}
    before, row = daemon.points("device")[-2:]
    assert (row.tags["kind"], row.tags["model"], row.tags["uuid"]) == ("gpu", "Acme One", "A-1")
    assert (row.fields["power_w"], row.fields["util_pct"]) == (POWER_W, 40.0)
    # 730 a month are 1 an hour of an average month.
    interval_h = (row.time_ns - before.time_ns) / NS_PER_S / 3600
    assert row.fields["cost"] == pytest.approx(interval_h, rel=0.1)
    assert alert.tags["rule"] == "power"
    assert "above 0 W" in alert.fields["summary"]
    _, path, _, body = server.requests[0]
    assert (path, body[:9]) == ("/gpu-cost", b"[FIRING] ")
    sent = set(series.read_text().splitlines())
    with closing(StoreReader.open(daemon.store)) as reader:
        assert sent <= set(reader.lines(0, 2**62))
    assert {line.split(",")[0] for line in sent} >= {"device", "alert"}

    daemon.write(text.replace('"file"', '"other"'))
    assert "write one of v1, v2, otlp, file" in output_of("config", "check")
