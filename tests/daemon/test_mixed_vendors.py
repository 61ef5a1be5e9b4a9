"""A daemon on a host with boards of NVIDIA and AMD, one of them divided into partitions."""

import json
from fractions import Fraction

import pytest
from costprobe.core.records import NS_PER_S
from fakes.amdsmi import FakeAmdsmi

CONFIG = """
[host]
name = "h"
[telemetry]
every = "100ms"
[[price]]
name = "rent"
plan = "on_demand"
per = "device"
per_hour = 3
"""


def test_boards_of_two_vendors_are_measured_and_priced_and_parts_sum_to_their_board(
    daemon_in, gpus_of, tmp_path
):
    nvidia, amd = gpus_of(1), FakeAmdsmi(tmp_path, gpus=2)
    amd.gpus[0].set_power(400.0)
    amd.gpus[1].set_power(200.0)
    amd.gpus[1].divide(8, "CPX", "NPS4")
    env = {**nvidia.env(), **amd.env()}
    env["LD_LIBRARY_PATH"] = ":".join(fake.env()["LD_LIBRARY_PATH"] for fake in (nvidia, amd))
    daemon = daemon_in(**env)
    daemon.start(CONFIG)
    partitions = [f"amd1.xcp{number}" for number in range(8)]
    names = {"gpu0", "amd0", "amd1", *partitions}

    def rows():
        found = {}
        for row in daemon.points("device"):
            found.setdefault(row.tags["device"], []).append(row)
        return found

    daemon.wait_for(
        lambda: min([len(each) for each in rows().values()] or [0]) > 3 and rows().keys() >= names
    )
    status, doctor = daemon.status(), json.loads(daemon.look("doctor", "--json"))
    daemon.stop()
    found = rows()
    assert found.keys() == names
    board = found["amd0"][2]
    assert (board.tags["kind"], board.tags["model"]) == ("gpu", "AMD Instinct MI300X")
    assert (board.fields["power_w"], board.fields["energy_method"]) == (400.0, "counter")
    last, before = found["amd0"][3], found["amd0"][2]
    interval_s = (last.time_ns - before.time_ns) / NS_PER_S
    assert last.fields["energy_j"] == pytest.approx(400 * interval_s, rel=0.2)
    assert last.fields["cost"] == pytest.approx(3 * interval_s / 3600, rel=0.2)
    assert {found[name][2].tags["kind"] for name in partitions} == {"mig"}
    assert not any("energy_j" in row.fields for name in partitions for row in found[name])
    rates = {name: Fraction(each[2].fields["price_rate_per_h"]) for name, each in found.items()}
    assert [rates["gpu0"], rates["amd0"]] == [3, 3]
    assert rates["amd1"] + sum(rates[name] for name in partitions) == 3
    assert {rates[name] for name in partitions} == {Fraction(3, 8)}
    sensor = status["sensor"]
    assert (sensor["driver_version"], sensor["driver_faults"]) == ("580.65.06", {})
    assert sensor["other_versions"]["AMD SMI"] == "26.1.0"
    checks = {check["name"]: check["detail"] for check in doctor}
    assert checks["NVIDIA driver"] == "580.65.06, 1 device"
    assert checks["AMD driver"] == f"{sensor['other_versions']['AMD driver']}, 10 devices"
