"""The command explain without periods: before, in and after an incident, and after an update without effect."""

from contextlib import closing
from dataclasses import replace

import pytest
from click.testing import CliRunner
from costprobe.adapters.store.write import Store
from costprobe.alerts.engine import AlertEngine
from costprobe.alerts.replay import COLLECTOR, replay
from costprobe.alerts.rules.kinds import effective_rules
from costprobe.alerts.settings import AlertingConfig
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import event_point
from costprobe.delivery.contract import NotifierConfig
from costprobe.drift.monitor import DriftMonitor
from costprobe.drift.settings import DetectionConfig
from costprobe.ui.cli.main import main
from fakes.clock import FakeClock
from fakes.documents import checked
from fakes.scripted_cases import CaseRows, ScriptedChange, cases, rows_of

HOST = {"host": "h1"}
H_NS = 3600 * NS_PER_S
# 15 hours of heat.
HEAT = ScriptedChange("cooling", 80, 1.0, until_hour=95)


@pytest.fixture
def explained(tmp_path, monkeypatch):
    """Return a function: the explanation of a scripted history at an hour."""
    seen = []

    def at(hour, *changes, noise=0.01):
        (case,) = cases(1, seed=3)
        history = replace(case, changes=changes, hours=hour, noise=noise, daily=0.01, seed=5)
        rows = rows_of(history)
        rules = effective_rules((), use_defaults=True)
        collector = NotifierConfig(name=COLLECTOR, kind="replay")
        engine = AlertEngine(rules, AlertingConfig(), (), (collector,), HOST)
        monitor = DriftMonitor(DetectionConfig(), CaseRows(rows))
        found = replay([row for row in rows if row.measurement != "event"], engine, monitor, 300)
        now_ns = rows[-1].time_ns + NS_PER_S
        path = tmp_path / f"{len(seen)}.toml"
        seen.append(path)
        store_path = path.with_suffix(".db")
        path.write_text(f'[host]\nname = "h1"\n[store]\npath = "{store_path}"\n')
        with closing(Store.open(store_path, FakeClock(now_ns))) as store:
            store.append([*rows, *(event_point(event, HOST) for event in found.events)])
            alerts = [alert.to_document() for alert in engine.alerts()]
            store.put_state("alerts", {"alerts": alerts, "silences": [], "silenced": []})
        monkeypatch.setattr("time.time_ns", lambda: now_ns)
        texts = [
            CliRunner().invoke(main, ["--config", str(path), "explain", *words]).output
            for words in ((), ("--json",))
        ]
        (series,) = checked("explain", texts[1])["series"]
        return texts[0], series

    return at


def test_incident_is_explained_from_its_start_and_quiet_times_have_no_cause(explained):
    wrong = {}
    for name, hour, basis in (
        ("before", 79, "halves"),
        ("in", 86, "incident"),
        ("an hour after", 96, "reverted"),
    ):
        text, series = explained(hour, HEAT)
        change = series["change"]
        is_in = name == "in"
        seen = (
            series["basis"] == basis,
            (change["cause"] == "cooling") is is_in,
            ("fan and airflow" in text.split("\ntime ")[0]) is is_in,
            (": no change beyond its noise of ±" in text) is not is_in,
            (change["noise_pct"] is None) is is_in,
            bool(change["causes"]) is is_in,
            (change["change_per_month"] is not None) is is_in,
            "(0 to 100 %)" not in text,
        )
        if not all(seen) or (change["change_pct"] > 20) is not is_in:
            wrong[name] = (seen, text)
    assert wrong == {}


def test_step_without_an_incident_is_found_and_an_update_without_effect_is_not(explained):
    # A slow change within the first hour: no alert yet.
    text, series = explained(80.3, ScriptedChange("clock", 80, 0.2))
    assert series["basis"] in {"change", "incident"}, text
    assert series["change"]["cause"] == "clock"
    for noise in (0.004, 0.1):
        text, series = explained(86, ScriptedChange("update without effect", 80), noise=noise)
        change = series["change"]
        assert (change["cause"], change["causes"], change["action"]) == ("unknown", [], ""), text
        assert "roll back" not in text
        assert abs(change["change_pct"]) < change["noise_pct"]
