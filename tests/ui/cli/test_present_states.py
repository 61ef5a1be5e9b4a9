"""`status` and `status --watch` agree while the daemon runs and its store cannot be written."""

import json
from threading import Event

import pytest
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.daemon.control import ControlServer
from fakes.command import called
from fakes.incidents import incident

WORDS = (("status",), ("status", "--watch"))


def status_of(store, state, error):
    sink = {"state": state, "last_error": error, "retry_in_s": None, "rejections": None}
    return {
        "state": "running", "version": "0", "pid": 2**22 + 1, "host": state, "started_ns": 1,
        "config": None, "config_fault": None, "devices": [], "probes": [], "jobs": {},
        "sinks": {"influxdb": sink}, "notifiers": {}, "alerting": {},
        "sensor": {"state": "running", "driver_version": None, "child_restarts": 0,
                   "last_fault": None, "devices": {}},
        "store": {"path": str(store), "fault": error}, "control": {"fault": None},
    }  # fmt: skip


@pytest.fixture
def config(tmp_path):
    """A store whose documents are old; returns the configuration file."""
    path = tmp_path / "costprobe.db"
    store = Store.open(path, SystemClock())
    store.register_sink("influxdb")
    store.put_state("alerts", {"alerts": [], "silenced": [], "silences": []})
    store.put_state("status", status_of(path, "old", "old error"))
    store.close()
    config = tmp_path / "costprobe.toml"
    config.write_text(f'[store]\npath = "{path}"\n')
    return config


def shown(config):
    """Return what each command shows of the sink, and whether the alert fires."""
    status, top = (
        json.loads(called(config, *words, "--json", code=None).stdout) for words in WORDS
    )
    return (
        [
            status["sinks"]["influxdb"]["last_error"],
            top["sinks"][0]["last_error"],
        ],
        [status["running"], top["running"]],
        [len(status["alerts"]), len(top["alerts"])],
    )


def test_commands_show_the_documents_of_the_running_daemon(config):
    alerts = [incident(since_ns=1).to_document()]
    store = config.with_name("costprobe.db")
    daemon = {"store": store}
    answers = {
        "status": lambda _: {**status_of(daemon["store"], "new", "disk full"), "alerts": alerts},
        "alerts": lambda _: {"alerts": alerts, "silenced": [], "silences": []},
    }
    stored = (["old error"] * 2, [False, False], [0, 0])
    assert shown(config) == stored
    server = ControlServer(config.with_name("control.sock"), answers, Event())
    server.start()
    try:
        assert shown(config) == (["disk full"] * 2, [True, True], [1, 1])
        daemon["store"] = store.with_name("another.db")
        assert shown(config) == stored
    finally:
        server.close()
