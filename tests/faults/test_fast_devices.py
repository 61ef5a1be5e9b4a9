"""A daemon whose devices appear and disappear faster than it looks.

Outcome: no other device loses a row, no message of a batch is lost with another, no critical alarm
fires, and the new devices are measured in the end.
"""

import itertools
import time

from costprobe.core.records import NS_PER_S
from fakes.scenes import QUICK_STATUS

PRICED = """
[electricity]
tariff_per_kwh = 0.3
[carbon]
g_per_kwh = 380
[[budget]]
name = "host"
amount = 1000
period = "month"
[[service]]
name = "chat"
engine = "vllm"
url = "http://127.0.0.1:9/metrics"
devices = ["gpu1"]
"""
LAYOUTS = ((3, 4), (), (7,), (1, 1, 2), (), (2, 5))
CHANGES = 12
# Rows follow each other; a machine under load may delay one.
LONGEST_GAP_NS = 30 * NS_PER_S


def is_measured(daemon, *names):
    return all(daemon.points("device", device=name) for name in names)


def assert_undisturbed(daemon, names, critical=0):
    """Each of the devices has rows without a gap, and no other alarm was critical."""
    problems = []
    for name in names:
        times_ns = [row.time_ns for row in daemon.points("device", device=name)]
        gaps_ns = [after - before for before, after in itertools.pairwise(sorted(times_ns))]
        if max(gaps_ns) > LONGEST_GAP_NS:
            problems.append(f"{name}: no row for {max(gaps_ns) / NS_PER_S:.1f} s")
    alarms = [
        f"critical: {row.fields.get('title') or row.fields.get('summary')}"
        for measurement in ("event", "alert")
        for row in daemon.points(measurement)
        if row.fields["severity"] == "critical" and row.tags.get("state") != "resolved"
    ]
    problems += alarms[critical:]
    output = daemon.output.read_text()
    problems += [line for line in output.splitlines() if "Traceback" in line]
    assert problems == [], output


def test_fast_repartitioning_disturbs_no_other_device(daemon_in, gpus_of):
    fake = gpus_of(2)
    daemon = daemon_in(**fake.env())
    daemon.start(QUICK_STATUS + PRICED)
    daemon.wait_for(lambda: is_measured(daemon, "gpu0", "gpu1"))
    layouts = itertools.cycle(LAYOUTS)
    for _ in range(CHANGES):
        layout = next(layouts)
        if layout:
            fake.gpus[0].split(*layout)
        else:
            fake.gpus[0].unsplit()
        time.sleep(0.2)
    fake.gpus[0].split(3, 4)
    since_ns = time.time_ns()
    for name in ("gpu0", "gpu1"):
        daemon.wait_for(
            lambda name=name: any(
                row.time_ns > since_ns for row in daemon.points("device", device=name)
            )
        )
    assert daemon.status()["sensor"]["child_restarts"] == 0
    assert daemon.status()["sensor"]["callback_errors"] == 0
    daemon.stop()
    assert_undisturbed(daemon, ("gpu0", "gpu1"))


def test_driver_that_hangs_in_its_initialization_is_reported_and_its_devices_appear_later(
    daemon_in, gpus_of
):
    fake = gpus_of(2)
    hang = fake.hang("nvmlInitWithFlags")
    daemon = daemon_in(**fake.env())
    daemon.start(QUICK_STATUS.replace("[telemetry]", "[telemetry]\ncpu = true") + PRICED)
    daemon.wait_for(lambda: is_measured(daemon, "cpu"))
    daemon.wait_for(lambda: firing(daemon) == ["firing"])
    assert "DEADLINE" in daemon.status()["sensor"]["driver_faults"]["nvidia"]
    assert len([row for row in daemon.points("event") if "DEADLINE" in row.fields["title"]]) == 1
    hang.clear()
    daemon.wait_for(lambda: is_measured(daemon, "gpu0", "gpu1"))
    # The new parts hold the incident until two minutes after the start of the sensors.
    assert firing(daemon).count("firing") == 1
    sensor = daemon.status()["sensor"]
    assert (sensor["driver_faults"], sensor["child_restarts"], sensor["callback_errors"]) == (
        {},
        0,
        0,
    )
    daemon.stop()
    assert_undisturbed(daemon, ("cpu",), critical=1)


def firing(daemon):
    """The states of the alert about the driver, in order of time."""
    return [row.tags["state"] for row in daemon.points("alert", rule="broken")]
