"""A notifier that only the table names runs in a daemon: the example of the contributors' page."""

from fakes.daemon import DaemonProcess
from fakes.page_examples import example
from fakes.scenes import QUICK
from fakes.servers import Scripted

REGISTER = """
from costprobe.delivery.kinds import NOTIFIERS, NotifierKind
from ntfy import Ntfy, NtfyConfig
NOTIFIERS["ntfy"] = NotifierKind(NtfyConfig, Ntfy)
"""
RULE = """
[[rule]]
name = "power"
kind = "threshold"
measurement = "device"
field = "power_w"
above = 0.0
[alerting]
defaults = false
evaluate_every = "1s"
"""


def test_daemon_notifies_through_a_kind_that_only_the_table_names(tmp_path):
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "ntfy.py").write_text(example("notifiers.md", "ntfy.py"))
    # What a contributor adds to the table; Python imports it at its start.
    (modules / "sitecustomize.py").write_text(REGISTER)
    daemon = DaemonProcess(tmp_path, {"PYTHONPATH": str(modules)})
    with Scripted(lambda *_: (200, {}, b"{}")) as server:
        section = example("notifiers.md", "ntfy.toml").replace(
            "https://ntfy.example.com", server.url
        )
        try:
            daemon.start(QUICK + RULE + section)
            daemon.wait_for(lambda: server.requests)
        finally:
            daemon.stop()
    _, path, _, body = server.requests[0]
    assert path == "/gpu-cost"
    assert body.startswith(b"[FIRING] ")
