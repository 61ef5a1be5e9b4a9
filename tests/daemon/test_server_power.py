"""A real daemon reads the server's power of a scripted BMC beside two fake GPUs of 300 W."""

import json

import pytest
from fakes.scenes import OWNED, QUICK_STATUS
from fakes.servers import Scripted


def test_rest_of_the_server_appears_in_rows_status_and_faults(gpus, daemon_in):
    reading = {"PowerControl": [{"Name": "System Power Control", "PowerConsumedWatts": 1000}]}
    answers = [(200, {}, json.dumps(reading).encode())]
    daemon = daemon_in(**gpus.env())
    with Scripted(lambda *_: answers[-1]) as bmc:
        url = f"{bmc.url}/redfish/v1/Chassis/1/Power"
        section = f'[server_power]\nurl = "{url}"\nevery = "1s"\n'
        daemon.start(QUICK_STATUS + OWNED + section)

        def rows():
            return [row for row in daemon.points("server") if "others_energy_j" in row.fields]

        row = daemon.wait_for(rows)[0]
        # 1,000 W less 2 x 300 W, at 0.36 a kWh; the samples of the GPUs do not begin with a short window.
        length_s = row.fields["window_s"]
        assert row.fields["energy_j"] == pytest.approx(1000 * length_s)
        assert row.fields["others_energy_j"] == pytest.approx(400 * length_s, rel=0.25)
        assert row.fields["cost"] == pytest.approx(1000 * length_s * 1e-7)
        others_cost = row.fields["others_energy_j"] * 1e-7
        assert row.fields["cost_others"] == pytest.approx(others_cost)
        daemon.wait_for(lambda: "server   1 kW, GPUs " in daemon.look("status"))
        assert ", besides GPUs " in daemon.look("status")
        assert "server power: 1,000 W, no energy counter" in daemon.look("doctor", code=None)
        answers.append((401, {}, b"{}"))
        daemon.wait_for(lambda: daemon.status()["server_power"]["fault"])
        assert "the server's power cannot be used (http://127" in daemon.look("status")
