"""The command explain without periods: before, in and after an incident, and after an update without effect."""

from contextlib import closing
from dataclasses import replace

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
from fakes.benches import CaseRows, ScriptedChange, cases, rows_of
from fakes.cli import Cli, same, stopped_clock
from fakes.clock import FakeClock
from fakes.documents import checked

HOST = {"host": "h1"}
# 15 hours of heat.
HEAT = ScriptedChange("cooling", 80, 1.0, until_hour=95)


# Of heat: an hour before, six hours later, and an hour after it; a change within an hour, of which no alert
# fires yet, and updates without effect, of which nothing is said. Name, hour, change and noise.
CASES = (
    ("before heat", 79, HEAT, 0.01),
    ("in heat", 86, HEAT, 0.01),
    ("after heat", 96, HEAT, 0.01),
    ("a slow clock", 80.3, ScriptedChange("clock", 80, 0.2), 0.01),
    ("an update", 86, ScriptedChange("update without effect", 80), 0.004),
    ("an update in noise", 86, ScriptedChange("update without effect", 80), 0.1),
)


def explained(folder, hour, change, noise):
    """Return what is printed of a scripted history at an hour."""
    (case,) = cases(1, seed=3)
    rows = rows_of(replace(case, changes=(change,), hours=hour, noise=noise, daily=0.01, seed=5))
    rules = effective_rules((), use_defaults=True)
    collector = NotifierConfig(name=COLLECTOR, kind="replay")
    engine = AlertEngine(rules, AlertingConfig(), (), (collector,), HOST)
    monitor = DriftMonitor(DetectionConfig(), CaseRows(rows))
    found = replay([row for row in rows if row.measurement != "event"], engine, monitor, 300)
    now_ns = rows[-1].time_ns + NS_PER_S
    folder.mkdir()
    cli = Cli(folder, '[host]\nname = "h1"\n')
    with closing(Store.open(cli.store, FakeClock(now_ns))) as store:
        store.append([*rows, *(event_point(event, HOST) for event in found.events)])
        alerts = [alert.to_document() for alert in engine.alerts()]
        store.put_state("alerts", {"alerts": alerts, "silences": [], "silenced": []})
    with stopped_clock(now_ns // NS_PER_S):
        (series,) = checked("explain", cli("explain", "--json"))["series"]
        return cli("explain"), f"basis {series['basis']}, cause {series['change']['cause']}\n"


def test_incidents_quiet_times_and_updates_are_explained(tmp_path):
    texts = []
    for name, *case in CASES:
        texts += [f"# {name}\n", *explained(tmp_path / name, *case)]
    same("explain_incidents", "".join(texts), masked=False)
