"""After a reboot without board 0 the others move down: nothing of theirs becomes another's."""

import json

from fakes.scenes import QUICK

RULES = """
[alerting]
evaluate_every = "500ms"
defaults = false
[[rule]]
name = "hot"
kind = "threshold"
measurement = "device"
field = "temp_c"
above = 85
[[rule]]
name = "absent"
kind = "fault"
faults = ["device_absent", "probe_failing"]
[[price]]
plan = "on_demand"
name = "each"
per = "device"
per_hour = 1
[[price]]
plan = "on_demand"
name = "dear"
device = "gpu1"
per_hour = 5
[[probe]]
name = "encoder"
kind = "transformer"
devices = ["gpu1"]
every = "1h"
"""


def test_boards_keep_their_incidents_and_an_absent_one_is_reported_until_it_left(
    daemon_in, gpus_of
):
    fake = gpus_of(2)
    first, second = (f"GPU-0000000{i}-fake-4000-8000-000000000000" for i in range(2))
    fake.gpus[1].set(temp_c=90)
    daemon = daemon_in(**fake.env())
    daemon.start(QUICK + RULES)

    def firing(name):
        alerts = daemon.status()["alerts"]
        return [each for each in alerts if (each["name"], each["state"]) == (name, "firing")]

    (before,) = daemon.wait_for(lambda: firing("hot"))
    assert before["symptoms"][0]["labels"]["device"] == "gpu1"
    daemon.stop()
    fake.remove(0)
    daemon.start()
    assert daemon.status()["absent_boards"][first]["device"] == first
    (after,) = daemon.wait_for(lambda: firing("hot"))
    assert (after["id"], after["symptoms"][0]["labels"]["device"]) == (before["id"], "gpu0")
    (event,) = daemon.points("event", kind="software")
    assert (event.tags["device"], event.fields["after"]) == ("gpu0", f"board {second}")
    absent = daemon.wait_for(lambda: firing("absent"))
    labels = {alert["labels"]["device"]: alert["symptoms"][0]["labels"] for alert in absent}
    assert labels == {first: {"device": first}, "gpu1": {"device": "gpu1", "probe": "encoder"}}
    assert "encoder" in daemon.look("status")
    found = {check["name"]: check for check in json.loads(daemon.look("doctor", "--json", code=1))}
    bad = [f"device {first}", "price dear", "probe encoder"]
    assert [found[name]["state"] for name in bad] == ["bad"] * 3
    daemon.look("annotate", "--device", first, "--left")
    assert daemon.status()["absent_boards"] == {}


def test_boards_that_move_under_a_running_daemon_keep_their_history_prices_and_probes(
    daemon_in, gpus_of
):
    fake = gpus_of(3)
    uuids = [f"GPU-0000000{i}-fake-4000-8000-000000000000" for i in range(3)]
    daemon = daemon_in(**fake.env())
    by_uuid = RULES.replace('"gpu1"', f'"{uuids[1]}"')
    daemon.start(QUICK + by_uuid)

    def rates_of(uuid):
        """By name: the rates of the rows of a board."""
        rows = daemon.points("device", uuid=uuid)
        return {row.tags["device"]: row.fields["price_rate_per_h"] for row in rows}

    daemon.wait_for(lambda: rates_of(uuids[2]))
    assert rates_of(uuids[1]) == {"gpu1": 5}
    fake.remove(0)
    fake.upgrade_driver("595.10")
    daemon.wait_for(lambda: "gpu0" in rates_of(uuids[1]))
    daemon.wait_for(lambda: "gpu1" in rates_of(uuids[2]))
    named = [rates_of(uuid) for uuid in uuids]
    assert named == [{uuids[0]: 1}, {"gpu0": 5}, {"gpu1": 1}]
    # While its probes are rebuilt, the status has none.
    daemon.wait_for(lambda: daemon.status()["probes"])
    status = daemon.status()
    assert [device["name"] for device in status["devices"] if device["kind"] == "gpu"] == [
        "gpu0",
        "gpu1",
    ]
    assert [*status["absent_boards"]] == uuids[:1]
    assert [(job["probe"], job["device"]) for job in status["probes"]] == [("encoder", "gpu0")]
