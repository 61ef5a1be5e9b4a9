"""Two daemons with stores of their own on one host: one bills a device."""

from fakes.daemon import DaemonProcess
from fakes.nvml import FakeNvml
from fakes.scenes import QUICK_STATUS

PROBE = """
[[probe]]
name = "ranker"
kind = "transformer"
every = "1h"
"""


def test_second_daemon_neither_bills_nor_probes_a_device_and_says_so(tmp_path):
    env = {**FakeNvml(tmp_path, gpus=1).env(), "COSTPROBE_SCOPE": str(tmp_path)[-60:]}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with DaemonProcess(tmp_path / "a", env) as first, DaemonProcess(tmp_path / "b", env) as second:
        first.start(QUICK_STATUS)
        second.start(QUICK_STATUS + PROBE)
        status = second.status()
        assert status["devices"] == []
        assert f"store {first.store}" in status["billed_elsewhere"]["gpu0"]
        assert [probe["fault"]["kind"] for probe in status["probes"]] == ["device"]
        assert "billed by another daemon" in second.look("status")
        first.wait_for(lambda: first.points("device"))
        assert second.points("device") == []
        second.wait_for(lambda: [a for a in second.status()["alerts"] if a["name"] == "failing"])
        rows = [*first.points("agent"), *second.points("agent")]
        assert len({row.fields["instance"] for row in rows}) == 2
        first.stop()
        second.wait_for(lambda: second.points("device"))
        assert second.status()["billed_elsewhere"] == {}
